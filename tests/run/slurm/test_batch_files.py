"""The ranks of tasks, and the reading of #SBATCH lines, on a real Slurm."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from falsifiers.recsys.oracle.batch_options import Request, components, request
from falsifiers.recsys.reference.batch_file import FILE

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")


@pytest.mark.parametrize(("options", "size"), [(("--ntasks=4", "--ntasks-per-node=2"), "2"), (("--ntasks=2",), "1")])
def test_each_task_gets_its_ranks(options: tuple[str, ...], size: str, folder: Path) -> None:
    """The reference of F-SLURM-ENV-001 gets its ranks, with and without a stated number of tasks for each node."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\necho "{" ".join(f"${name}" for name in NAMES)}"\n')
    python.chmod(0o755)
    output = folder / "output"
    done = subprocess.run(
        ["sbatch", "--wait", "--partition=fleet", "--nodes=2", *options, "--gpus-per-node=2", "--cpus-per-task=1",
         "--time=1", f"--output={output}", str(FILE), "train.py"],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, (done.stderr, output.read_text())
    tasks = 2 * int(size)
    expected = [f"{rank} {rank % int(size)} {tasks} {size} 29500" for rank in range(tasks)]
    assert sorted(output.read_text().splitlines()) == expected


@pytest.mark.parametrize(
    ("lines", "shown", "read"),
    [
        (["--nodes=2 --ntasks-per-node=1 --gpus-per-node=2"], ("2", "2", "Node=gres:gpu:2"), Request(1, 2)),
        (
            ["-N 2 --ntasks-per-n 2 # -n 9", "##SBATCH -N1", " #SBATCH -N1", "--gres=gpu"],
            ("2", "4", "Node=gres:gpu"), Request(2, 1),
        ),
        (["-N2 -n2 -G2", "", "ulimit -c 0", "#SBATCH -N 1 -G 1"], ("2", "2", "Job=gres:gpu:2"), Request(1, 1)),
        (["-n1 --gpus-per-task=2"], ("1", "1", "Task=gres:gpu:2"), Request(1, 2)),
    ],
)  # fmt: skip
def test_slurm_reads_the_same(lines: list[str], shown: tuple[str, str, str], read: Request, folder: Path) -> None:
    """Slurm's numbers of nodes, tasks and GPUs of a held job equal those that the falsifier reads."""
    options = "--partition=fleet --hold --time=1 --mem=1 --output=/dev/null"
    written = [line if not line or line.lstrip()[0] in "#u" else f"#SBATCH {line}" for line in [options, *lines]]
    file = folder / "job.sbatch"
    file.write_text("\n".join(["#!/bin/sh", *written, "true", ""]))
    number = subprocess.run(["sbatch", "--parsable", file], capture_output=True, text=True, check=True).stdout.strip()
    told = subprocess.run(["scontrol", "show", "job", number], capture_output=True, text=True, check=True).stdout
    subprocess.run(["scancel", number], check=True)
    found = re.search(r"NumNodes=(\d+)\S* .*NumTasks=(\d+)[\s\S]*TresPer(\S+)", told)
    assert found is not None, told
    assert (found.groups(), request(components(file.read_text())[0])) == (shown, read)
