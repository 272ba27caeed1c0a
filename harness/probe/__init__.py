"""The memory of a training step, predicted without a GPU."""

from harness.probe.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from harness.probe.errors import ProbeError, Unseeable
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
    "Unseeable",
    "Verdict",
    "predict",
    "verdict",
]
