"""The memory of a training step, predicted without a GPU."""

from harness.probe.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from harness.probe.errors import ProbeError, Unseeable
from harness.probe.prediction import Peak, Prediction, predict

__all__ = [
    "AllocatorSettings",
    "CachingAllocator",
    "OutOfMemory",
    "Peak",
    "Prediction",
    "ProbeError",
    "Unseeable",
    "predict",
]
