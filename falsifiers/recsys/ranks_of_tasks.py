"""F-SLURM-ENV-001: every task of a batch file exports its own ranks, and torchrec finds the size of a node.

The whole file runs. Only Slurm and the trainer are replaced: programs at the front of PATH replace srun, scontrol,
hostname and Python, which records its variables.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from falsifiers.recsys import simulated_srun
from falsifiers.recsys.batch_files import File
from falsifiers.recsys.oracle.batch_options import components
from falsifiers.recsys.oracle.local_size import group_rank, local_size
from falsifiers.recsys.tool_subjects import BatchFile
from harness import NotMeasured, Trial

__all__ = ["File", "falsify"]

_ROOT = Path(__file__).parents[2]
_SECONDS = 120.0
"""A file that takes longer waits for something that this machine does not have."""
_TRAINERS = ("python", "python3", "torchrun", "accelerate", "deepspeed")
_LAUNCHERS = _TRAINERS[2:]
_NOTING = """#!/bin/sh
[ -z "$SIMULATED_TASK" ] || env -0 SIMULATED_PROGRAM={program} > "$SIMULATED_RECORDS/$SIMULATED_TASK"
"""
_IDLE = ("nvidia-smi", "module", "ml", "conda", "git")
_PORTS = {
    "srun": f'#!/bin/sh\nexec "{sys.executable}" -IS "{simulated_srun.__file__}" "$@"\n',
    "scontrol": '#!/bin/sh\ni=0\nwhile [ $i -lt "$SLURM_NNODES" ]; do echo node$i; i=$((i+1)); done\n',
    "hostname": '#!/bin/sh\necho "$SLURMD_NODENAME"\n',
    **{program: _NOTING.format(program=program) for program in _TRAINERS},
    **dict.fromkeys(_IDLE, "#!/bin/sh\n"),
}
"""The text of each replacing program, by name."""

Variables = Mapping[str, str]


@dataclass(frozen=True)
class _Topology:
    """Nodes, the tasks of each, and whether the submission stated the tasks per node."""

    nodes: int
    per_node: int
    stated: bool

    @property
    def tasks(self) -> int:
        return self.nodes * self.per_node


Check = Callable[[Variables, _Topology], bool]


def falsify(trial: Trial[BatchFile]) -> None:
    """Run the file as jobs of several topologies, and read the variables that each task of some nodes exports."""
    with trial.subject_fault():
        text = trial.subject.text()
    file = trial.workspace / "job.sbatch"
    file.write_text(text)
    wrong: dict[str, list[int]] = {name: [] for name in ("tasks", "missing", *_WRONG)}
    for topology in _topologies(trial, always_stated="ntasks-per-node" in components(text)[0]):
        nodes = _some_nodes(trial, topology)
        notes = _job(trial, file, topology, nodes)
        expected = len(nodes) * topology.per_node
        if not notes and not sum(wrong["tasks"]):
            raise NotMeasured(
                "no task started python through srun; -P variables='[\"NAME=VALUE\"]' sets what the file needs"
            )
        wrong["tasks"].append(expected)
        wrong["missing"].append(expected - len(notes))
        for name, check in _WRONG.items():
            wrong[name].append(sum(_is_wrong(check, variables, topology) for variables in notes))
    trial.measure(**wrong)
    trial.resolve(device="cpu")


def _topologies(trial: Trial[BatchFile], *, always_stated: bool) -> list[_Topology]:
    """Return the contract's topologies, then random ones. A file that states tasks per node always has them."""
    chance = random.Random(trial.seed)  # noqa: S311
    named = [_named(text) for text in trial.parameters["topologies"]]
    drawn = [
        _Topology(chance.randint(1, 32), chance.randint(1, 8), chance.random() < 0.5)
        for _ in range(trial.parameters["drawn"])
    ]
    return list(dict.fromkeys(replace(topology, stated=topology.stated or always_stated) for topology in named + drawn))


def _named(text: str) -> _Topology:
    """Return the topology of a text such as "18x4" or "18x4 stated"."""
    size, _, stated = text.partition(" ")
    nodes, _, per_node = size.partition("x")
    return _Topology(int(nodes), int(per_node), stated == "stated")


def _some_nodes(trial: Trial[BatchFile], topology: _Topology) -> list[int]:
    """Return the first node, the last, and some between."""
    most = trial.parameters["nodes_run"]
    ends = {0, topology.nodes - 1}
    between = [node for node in range(topology.nodes) if node not in ends]
    random.Random(trial.seed).shuffle(between)  # noqa: S311
    return sorted(ends) + sorted(between[: max(0, most - len(ends))])


def _job(trial: Trial[BatchFile], file: Path, topology: _Topology, nodes: list[int]) -> list[Variables]:
    """Run the file as a job's batch script; return the variables of each task at the last start of its trainer."""
    bash = shutil.which("bash")
    if bash is None:
        raise NotMeasured("bash is not installed, and a batch file is a script for it")
    records = trial.workspace / f"{topology.nodes}x{topology.per_node}-{topology.stated}"
    records.mkdir()
    programs = _programs(trial.workspace / "bin")
    variables = {
        **_of_batch_script(topology), simulated_srun.NODES: ",".join(map(str, nodes)),
        simulated_srun.RECORDS: str(records), "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(trial.workspace), "SLURM_SUBMIT_DIR": str(trial.workspace),
        **dict(text.split("=", 1) for text in trial.parameters["variables"]),
    }  # fmt: skip
    if distribution := components(file.read_text())[0].get("distribution"):
        variables["SLURM_DISTRIBUTION"] = distribution
    try:
        done = subprocess.run(
            [bash, str(file), *trial.parameters["arguments"]], cwd=trial.workspace, env=variables,
            stdin=subprocess.DEVNULL, timeout=_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"the file did not end within {_SECONDS:g} s of a simulated job") from error
    print(f"{topology}: exit status {done.returncode}", flush=True)
    if (layout := records / simulated_srun.LAYOUT).exists():
        raise NotMeasured(f"srun {layout.read_text()} asks for another layout than the job's, which is not simulated")
    notes = [
        dict(pair.split("=", 1) for pair in note.read_text(errors="replace").split("\0") if "=" in pair)
        for note in sorted(records.iterdir())
    ]
    launchers = {note["SIMULATED_PROGRAM"] for note in notes} & set(_LAUNCHERS)
    if launchers:
        raise NotMeasured(
            f"{sorted(launchers)[0]} sets the variables of its ranks itself; the claim is about files that do"
        )
    return notes


def _of_batch_script(topology: _Topology) -> dict[str, str]:
    """Return the variables that Slurm sets for the batch script, which runs on the first node."""
    last = topology.nodes - 1
    names = f"node[0-{last}]" if last else "node0"
    own = {
        "SLURM_JOB_ID": 1, "SLURM_JOBID": 1, "SLURM_JOB_NAME": "job", "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_NNODES": topology.nodes, "SLURM_JOB_NUM_NODES": topology.nodes,
        "SLURM_NTASKS": topology.tasks, "SLURM_NPROCS": topology.tasks,
        "SLURM_TASKS_PER_NODE": f"{topology.per_node}(x{topology.nodes})" if last else topology.per_node,
        "SLURM_PROCID": 0, "SLURM_LOCALID": 0, "SLURM_NODEID": 0, "SLURMD_NODENAME": "node0",
        "SLURM_GPUS_ON_NODE": topology.per_node, "SLURM_CPUS_ON_NODE": topology.per_node,
    }  # fmt: skip
    if topology.stated:
        own["SLURM_NTASKS_PER_NODE"] = topology.per_node
    return {name: str(value) for name, value in own.items()}


def _programs(folder: Path) -> Path:
    """Make the replacing programs, once."""
    if not folder.exists():
        folder.mkdir()
        for name, text in _PORTS.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
    return folder


def _is_wrong(check: Check, variables: Variables, topology: _Topology) -> bool:
    """Return whether a task's variable is wrong; an unset one, or one that is no number, is."""
    try:
        return check(variables, topology)
    except (KeyError, ValueError, ZeroDivisionError):
        return True


def _differs(name: str, of_slurm: str) -> Check:
    return lambda variables, _: int(variables[name]) != int(variables[of_slurm])


def _resolves_another(variables: Variables, topology: _Topology) -> bool:
    world_size = int(variables["WORLD_SIZE"])
    if (of_torchrec := _torchrec()) is not None:
        with patch.dict(os.environ, variables, clear=True):
            return bool(of_torchrec(world_size) != topology.per_node)
    return local_size(variables, world_size) != topology.per_node


@cache
def _torchrec() -> Any:
    """Return torchrec's own function, or None if torchrec cannot be imported."""
    try:
        from torchrec.distributed.comm import get_local_size
    except Exception:  # the import loads fbgemm's libraries, which may not fit this machine
        return None
    return get_local_size


_WRONG: Mapping[str, Check] = {
    "wrong_ranks": _differs("RANK", "SLURM_PROCID"),
    "wrong_local_ranks": _differs("LOCAL_RANK", "SLURM_LOCALID"),
    "wrong_world_sizes": lambda task, topology: int(task["WORLD_SIZE"]) != topology.tasks,
    "wrong_local_world_sizes": lambda task, topology: int(task["LOCAL_WORLD_SIZE"]) != topology.per_node,
    "wrong_resolved_sizes": _resolves_another,
    "wrong_groups": lambda task, _: (
        group_rank(task, int(task["RANK"]), int(task["WORLD_SIZE"])) != int(task["SLURM_NODEID"])
    ),
    "wrong_addresses": lambda task, _: task["MASTER_ADDR"] != "node0" or int(task["MASTER_PORT"]) <= 0,
}
"""By measurement, whether a task's variables are wrong in a topology."""
