"""Measures how much memory real steps take, and whether they run under a cap.

On a GPU, torch's allocator has the figures. On a CPU, every storage that an operation returns is counted until it is
freed, and the step ends when the cap is exceeded.
"""

import gc
from collections.abc import Mapping
from typing import Any

import torch

from falsifiers.param_decomp.memory.subject import StepProbe
from falsifiers.param_decomp.peak import LiveStorage, TooMuch
from harness import Trial

WORKSPACES = 64 * 2**20
"""What torch allocates for cuBLAS on compute capability 9.0, for two handles; 0 on a CPU."""


def measured_peak(trial: Trial[StepProbe], workload: Mapping[str, Any]) -> int:
    """The peak of allocated bytes over the build and two steps; on a CPU with cuBLAS's workspaces added."""
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
    """Whether the build and two steps run under a cap on reserved bytes; on a CPU, on live bytes."""
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
    """Free what earlier steps left."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
