"""The cost of a trial beside its work: the seconds of a trial that does nothing, compared with a bare fork.

The target is at most 0.06 s beyond the fork. With `--device cuda` a trial adds a number on the GPU. The table then also
has a fork of a process with torch that does the same, and a new process that imports torch first.

    python -m benchmarks.trial_cost [--trials 40] [--device cpu|cuda]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from benchmarks.adding_project import project
from benchmarks.commands import clock, harness, trial_seconds

ADDING = """
import torch

from harness import Trial
from bench.adding import Adding


def falsify(trial: Trial[Adding]) -> None:
    with trial.subject_fault():
        total = trial.subject.total([1, 2, 3])
    torch.zeros(1, device=trial.device).sum().item()
    trial.resolve(device=torch.device(trial.device).type)
    trial.measure(total=total)
"""
"""A falsifier that uses its device for as little as possible."""
ADD = "import torch; torch.zeros(1, device='cuda').sum().item()"


def idle_trials(folder: Path, trials: int, device: str) -> dict[str, float]:
    """Return the seconds of one more trial: the difference between a run of many trials and of one."""
    project(folder, 0.0)
    path = folder / "contracts" / "F-BENCH-ADD-001" / "contract.json"
    claim = json.loads(path.read_text())
    (mutant,) = claim["mutants"]
    if device == "cuda":
        (folder / "bench" / "on_gpu.py").write_text(ADDING)
        claim["falsifier"] = "bench.on_gpu:falsify"
        claim["profiles"]["reduced"]["requires"]["device"] = "cuda"
    rows = []
    for count in (1, trials):
        claim["mutants"] = [{**mutant, "id": f"off-by-one-{number}"} for number in range(count)]
        path.write_text(json.dumps(claim))
        wall, records, used = harness(["F-BENCH-ADD-001", "-j", "1"], folder)
        if len(trial_seconds(records)) != 1 + count:
            raise SystemExit(f"not every trial ran: {records[0]['reason']}")
        rows.append({"wall": wall, "used": used, "trials": sum(trial_seconds(records))})
    few, many = rows
    return {f"{name} (s)": (many[name] - few[name]) / (trials - 1) for name in few}


def fork(work: Callable[[], object]) -> float:
    """Return the seconds of a fork of this process that does some work and exits. The work must succeed."""
    before = time.perf_counter()
    for _ in range(20):
        if not (pid := os.fork()):
            try:
                work()
            except BaseException:
                os._exit(1)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit("the work of a fork failed")
    return (time.perf_counter() - before) / 20


def add_on_gpu() -> None:
    """Use the GPU for as little as possible."""
    import torch

    torch.zeros(1, device="cuda").sum().item()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        row = idle_trials(Path(name) / "project", arguments.trials, arguments.device)
        if arguments.device == "cuda":
            row["in a new process (s)"] = clock([sys.executable, "-c", ADD], Path(name))
            import torch  # noqa: F401  # so that the forks have it

            row["in a fork with torch (s)"] = fork(add_on_gpu)
        row["a bare fork (s)"] = fork(lambda: None)
    print(pd.DataFrame([row]).round(4).to_string(index=False))


if __name__ == "__main__":
    main()
