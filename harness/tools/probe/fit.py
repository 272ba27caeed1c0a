"""Whether a predicted step fits into a device's memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.tools.probe.allocator import DOWNWARDS, UPWARDS, CachingAllocator, OutOfMemory
from harness.tools.probe.prediction import Prediction
from harness.tools.probe.trace import EMPTY_CACHE

__all__ = ["Fit", "Verdict", "verdict"]


class Fit(StrEnum):
    """Whether a step fits on a device."""

    FITS = "fits"
    DOES_NOT_FIT = "does not fit"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a capacity. Sizes are in bytes.

    Attributes:
        fit: `unknown` if the margin is smaller than the probe's error, or if the step fits but runs operators whose
            memory was never measured (`Trace.unmeasured`).
        capacity: the memory of the device.
        context: the part of it that the allocator cannot use.
        error: the probe's relative error on what is reserved.
        retries: how often the allocator would have to give segments back in order to fit.
    """

    fit: Fit
    capacity: int
    context: int
    error: float
    retries: int


def verdict(prediction: Prediction, capacity: int | None = None, *, context: int | None = None) -> Verdict:
    """Say whether the step runs on a device with `capacity` bytes, all of them if None.

    The allocator is simulated with two limits: the available memory minus the probe's error, and plus the error. The
    driver's placement of segments is unknown, so each limit is simulated with segments placed downwards and upwards.
    The step fits if it fits within the smaller limit in both directions. It does not fit if it exceeds the larger limit
    in both directions.

    Args:
        prediction: of the step.
        capacity: the memory of the device, by default of the device that was assumed.
        context: the memory that the allocator cannot use; by default the device's. It is 0 for a limit that
            `torch.cuda.set_per_process_memory_fraction` sets.
    """
    capacity = prediction.device.total if capacity is None else capacity
    context = prediction.device.context if context is None else context
    error = prediction.device.error
    room = capacity - context
    retries = [_retries(prediction, int(room / (1 + error)), way) for way in (DOWNWARDS, UPWARDS)]
    if None not in retries:
        fit = Fit.UNKNOWN if prediction.trace.unmeasured else Fit.FITS
    else:
        retries = [_retries(prediction, int(room / (1 - error)), way) for way in (DOWNWARDS, UPWARDS)]
        fit = Fit.DOES_NOT_FIT if retries == [None, None] else Fit.UNKNOWN
    return Verdict(fit, capacity, context, error, max(each or 0 for each in retries))


def _retries(prediction: Prediction, limit: int, direction: int) -> int | None:
    """How often segments are freed under a limit; None if the step exceeds the limit nevertheless."""
    allocator = CachingAllocator(prediction.settings, limit=max(limit, 0), direction=direction)
    held: dict[int, Any] = {}
    try:
        for event in prediction.trace.events:
            if event > 0:
                block = prediction.trace.blocks[event - 1]
                held[event] = allocator.allocate(block.bytes, block.stream)
            elif event < EMPTY_CACHE:
                allocator.free(held.pop(-event))
            else:
                allocator.empty_cache()
    except OutOfMemory:
        return None
    return allocator.retries
