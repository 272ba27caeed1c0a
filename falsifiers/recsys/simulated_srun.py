"""Replaces srun in a simulated job: runs a command once per task, with the variables that Slurm would set.

As a program, it reads from its environment which tasks to run and where to record them (`NODES`, `TASK`).
"""

import os
import subprocess
import sys
from pathlib import Path

NODES = "SIMULATED_NODES"
"""The variable with the indices of the nodes whose tasks run."""
RECORDS = "SIMULATED_RECORDS"
"""The variable with the folder for the tasks' records."""
LAYOUT = "layout"
"""The file in that folder that names a step with other tasks than the job's."""
TASK = "SIMULATED_TASK"
"""The variable with a task's node and its index there."""


def main(words: list[str]) -> int:
    """Run the command for the tasks of some nodes; return the largest exit status."""
    from falsifiers.recsys.oracle.batch_options import parsed

    options, command = parsed(words)
    nodes, tasks = int(os.environ["SLURM_NNODES"]), int(os.environ["SLURM_NTASKS"])
    per_node = tasks // nodes
    if options.get("ntasks", options.get("ntasks-per-node")) == "1" and options.get("nodes", "1") == "1" and tasks > 1:
        # Such as `srun -N1 -n1 -w "$first" hostname`, which queries a node before the training.
        variables = {"SLURMD_NODENAME": options.get("nodelist", "node0")}
        return subprocess.run(command, env=os.environ | variables).returncode
    layout = {"nodes": nodes, "ntasks": tasks, "ntasks-per-node": per_node}
    if other := [
        f"--{name}={options[name]}" for name, size in layout.items() if options.get(name, str(size)) != str(size)
    ]:
        Path(os.environ[RECORDS], LAYOUT).write_text(" ".join(other))
        return 0
    distribution = options.get("distribution") or os.environ.get("SLURM_DISTRIBUTION", "block")
    cyclic = distribution.partition(":")[0] == "cyclic"
    worst = 0
    for node in map(int, os.environ[NODES].split(",")):
        for local in range(per_node):
            rank = local * nodes + node if cyclic else node * per_node + local
            own = {
                "SLURM_PROCID": rank, "SLURM_LOCALID": local, "SLURM_NODEID": node, "SLURM_STEP_ID": 0,
                "SLURM_STEP_NUM_TASKS": tasks, "SLURM_STEP_NUM_NODES": nodes, "SLURMD_NODENAME": f"node{node}",
                TASK: f"{node}.{local}",
            }  # fmt: skip
            done = subprocess.run(command, env=os.environ | {name: str(value) for name, value in own.items()})
            worst = max(worst, abs(done.returncode))
    return worst


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main(sys.argv[1:]))
