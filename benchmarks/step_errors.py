"""The errors of healthy steps against the independent shadow, over many seeds, which F-DISTILL-STEP-001 must allow.

    python -m benchmarks.step_errors [--profile reduced] [--dtype float32] [--seeds 30] [--processes 8] [--device cpu]

The output has the largest error of each quantity over all seeds, the seed and the tensor that it came from, and the
tolerance. It ends with the time of training alone, of the trial, and of the shadow in it. Use one process on a GPU.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from falsifiers.distill import step
from falsifiers.distill.oracle.tolerances import TOLERANCES
from falsifiers.distill.oracle.watch import ShadowWatch
from falsifiers.distill.reference import Distillation
from harness import Setting
from harness.authoring.reports import Measured, TrialReport
from harness.execution.worker_trial import WorkerTrial

_EMPTY = ("unseeded", "misreported", "foreign_slots")
CONTRACT = Path(__file__).parents[1] / "contracts" / "distill" / "F-DISTILL-STEP-001" / "contract.json"


def main() -> None:
    """Measure all seeds and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", choices=["reduced", "full"], default="reduced")
    parser.add_argument("--dtype", choices=list(TOLERANCES), default="float32")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "step-errors")
    options = parser.parse_args()
    work = partial(measured, profile=options.profile, dtype=options.dtype, device=options.device, cache=options.cache)
    print(f"{options.profile} profile, {options.dtype}, {options.device}, {options.seeds} seeds", flush=True)
    rows = [work(0)]  # trains the teacher, which the others find in the cache
    if options.processes > 1:
        with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
            rows += pool.map(work, range(1, options.seeds), chunksize=1)
    else:
        rows += [work(seed) for seed in range(1, options.seeds)]
    print(table(rows, options.dtype).to_string())
    for row in rows:
        worrying = {name: row[name] for name in _EMPTY if row.get(name)}
        if worrying or "steps_executed" not in row:
            print(f"seed {row['seed']} is refuted: {worrying}")
    costs = (
        pd.DataFrame(rows)
        .reindex(columns=["training", "trial", "shadow", "peak", "told_speed"])
        .describe()
        .loc[["min", "50%", "max"]]
    )
    print(f"\nseconds, and GiB of GPU memory\n{costs.round(2).to_string()}")


def measured(seed: int, profile: str, dtype: str, device: str, cache: Path) -> dict[str, Any]:
    """Return the falsifier's measurements of a healthy run, and the time of the run without and with it."""
    torch.set_num_threads(1)
    contract = json.loads(CONTRACT.read_text())
    parameters = {**contract["profiles"][profile]["parameters"], "dtype": dtype}
    found: dict[str, Any] = {"seed": seed}

    def hear(said: TrialReport) -> None:
        if isinstance(said, Measured):
            found.update(said.values)

    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(parameters, device, seed, Path(folder), cache)
        alone = Distillation(setting)
        alone.teacher_weights()
        started = time.perf_counter()
        alone.distill(lambda step, **values: None)
        found["training"] = time.perf_counter() - started
    del alone
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(parameters, device, seed, Path(folder), cache)
        declared = frozenset(contract["observation"]["properties"])
        started = time.perf_counter()
        found["shadow"] = _timed_shadow()
        step.falsify(WorkerTrial(setting, Path(folder), declared, hear).build(Distillation))
        found["shadow"] = sum(found["shadow"])
        found["trial"] = time.perf_counter() - started
        found["peak"] = torch.cuda.max_memory_allocated() / 2**30 if device != "cpu" else math.nan
    print(f"seed {seed}: {found['trial']:.1f} s", flush=True)
    return found


def _timed_shadow() -> list[float]:
    """A list to which every further use of the shadow adds its seconds."""
    seconds: list[float] = []

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def run(*given: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return work(*given, **named)
            finally:
                if torch.cuda.is_initialized():
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - started)

        return run

    class Timed(ShadowWatch):
        """The shadow with a clock."""

        __init__ = timed(ShadowWatch.__init__)
        __call__ = timed(ShadowWatch.__call__)

    step.ShadowWatch = Timed  # type: ignore[attr-defined]
    return seconds


def table(rows: list[dict[str, Any]], dtype: str) -> pd.DataFrame:
    """Return for each quantity the largest error, its seed and tensor, and its share of the tolerance."""
    lines = {}
    for quantity, tolerance in TOLERANCES[dtype].items():
        name = f"{quantity}_error"
        most = max((row for row in rows if name in row), key=lambda row: float(row[name]), default=None)
        if most is not None:
            tensor = next((name for name in most["worst_tensors"] if name.split(" ")[0] == quantity), "")
            lines[quantity] = {
                "largest": f"{float(most[name]):.2g}",
                "of tolerance": f"{float(most[name]) / tolerance:.2g}",
                "seed": most["seed"],
                "tensor": tensor.partition(" ")[2],
            }
    return pd.DataFrame(lines).T


if __name__ == "__main__":
    main()
