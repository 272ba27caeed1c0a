"""The memory of a training step, predicted without a GPU."""

from harness.probe.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from harness.probe.errors import ProbeError, StepFailed, Unseeable
from harness.probe.fit import Fit, Verdict, verdict
from harness.probe.prediction import Peak, Prediction, predict

__all__ = [
    "AllocatorSettings",
    "CachingAllocator",
    "Fit",
    "OutOfMemory",
    "Peak",
    "Prediction",
    "ProbeError",
    "StepFailed",
    "Unseeable",
    "Verdict",
    "predict",
    "verdict",
]
