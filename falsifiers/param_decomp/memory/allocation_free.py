"""F-PD-MEMPROBE-ALLOC-001: a prediction of the 27-site step allocates none of its tensors."""

from __future__ import annotations

import resource

import torch

from falsifiers.param_decomp.memory.subject import StepProbe
from harness import Trial
from harness.authoring.device_watch import DeviceWatch

__all__ = ["falsify"]

_GIB = 2**30


def falsify(trial: Trial[StepProbe]) -> None:
    """Predict a step whose state no device holds, and watch this process's memory and the GPU from outside."""
    before = _largest()
    with DeviceWatch() as watch, trial.subject_fault():
        predicted = trial.subject.peak({})
    trial.measure(
        predicted_gib=predicted / _GIB,
        host_growth_gib=(_largest() - before) / _GIB,
        cuda_initialized=torch.cuda.is_initialized(),
    )
    if trial.device.startswith("cuda"):
        trial.measure(gpu_was_used=watch.was_used)
    trial.resolve(device=trial.device.partition(":")[0])


def _largest() -> int:
    """The most memory that this process has had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
