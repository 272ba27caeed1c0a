"""Real steps: how much memory they take, and whether they run under a cap.

On a GPU the allocator tells. On a CPU every storage that an operation makes is counted until it dies, and the step ends
where the cap is passed.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import torch

from falsifiers.param_decomp.memory.subject import StepProbe
from falsifiers.param_decomp.peak import LiveStorage, TooMuch
from harness import Trial

WORKSPACES = 64 * 2**20
"""What torch allocates for cuBLAS on compute capability 9.0, for two handles. A CPU has none of it."""


def measured_peak(trial: Trial[StepProbe], workload: Mapping[str, Any]) -> int:
    """The largest number of bytes allocated over the build and two steps; on a CPU as if it had cuBLAS's workspaces."""
    if trial.device.startswith("cuda"):
        _forget()
        before = torch.cuda.memory_allocated()
        with trial.subject_fault():
            _work(trial, workload)
        return torch.cuda.max_memory_allocated() - before
    with trial.subject_fault(), LiveStorage() as storage:
        _work(trial, workload)
    return storage.peak + WORKSPACES


def runs_under(trial: Trial[StepProbe], workload: Mapping[str, Any], capacity: int) -> bool:
    """Whether the build and two steps end under a cap on what is reserved; on a CPU, on what is live."""
    if trial.device.startswith("cuda"):
        _forget()
        torch.cuda.set_per_process_memory_fraction(capacity / torch.cuda.get_device_properties(0).total_memory)
        try:
            with trial.subject_fault():
                return _ends(trial, workload, torch.cuda.OutOfMemoryError)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
            _forget()
    with trial.subject_fault(), LiveStorage(capacity - WORKSPACES):
        return _ends(trial, workload, TooMuch)


def _ends(trial: Trial[StepProbe], workload: Mapping[str, Any], refusal: type[Exception]) -> bool:
    try:
        _work(trial, workload)
    except refusal:
        return False
    return True


def _work(trial: Trial[StepProbe], workload: Mapping[str, Any]) -> None:
    step = trial.subject.build(workload, trial.device)
    for _ in range(2):
        step()


def _forget() -> None:
    """Give back what earlier steps left."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
