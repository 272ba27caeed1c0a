"""F-PD-MEMPROBE-ALLOC-001: predicting the 27-site step allocates none of its tensors."""

import resource
import time

import torch

from falsifiers.param_decomp.memory.subject import StepProbe
from harness import Trial
from harness.authoring.device_watch import DeviceWatch

_GIB = 2**30


def falsify(trial: Trial[StepProbe]) -> None:
    """Predict a step whose state no device can hold, and watch the memory of this process and of the GPU."""
    before = _largest()
    with DeviceWatch() as watch, trial.subject_fault():
        predicted = trial.subject.peak({})
    trial.measure(
        predicted_gib=predicted / _GIB,
        host_growth_gib=(_largest() - before) / _GIB,
        cuda_initialized=torch.cuda.is_initialized(),
    )
    device = "cpu"
    if trial.device.startswith("cuda"):
        with DeviceWatch() as control:
            device = _work_on(trial.device)
        if control.was_used:  # a watch that sees no work proves nothing
            trial.measure(gpu_was_used=watch.was_used)
    trial.resolve(device=device)


def _work_on(device: str) -> str:
    """Use the device for longer than two samples of a watch, and return its type."""
    held = torch.ones(2**24, device=device)
    time.sleep(1.0)
    return held.device.type


def _largest() -> int:
    """The peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
