"""The memory of a training step, predicted without a GPU."""

from harness.tools.probe.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from harness.tools.probe.errors import ProbeError, StepFailed, Unseeable
from harness.tools.probe.fit import Fit, Verdict, verdict
from harness.tools.probe.prediction import Peak, Prediction, predict

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
