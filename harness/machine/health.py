"""Checks that a GPU works: NVML answers for it, and its driver has reported no hardware error.

    health = Health(gpu)     # starts recording the driver's errors
    …
    if reason := health.broken():
        …                    # use another GPU

Xid errors that a program can cause, such as 13 and 31, are ignored, according to NVIDIA's list, so that a failing
subject does not count as a broken GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

from harness.machine import nvml

if TYPE_CHECKING:
    from harness.machine.host import Gpu

__all__ = ["Health", "MemoryGib"]

_XIDS = {
    48: "double bit ECC error",
    62: "internal micro-controller halt",
    64: "row remapping failure",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
}
"""Errors that no program can cause (https://docs.nvidia.com/deploy/xid-errors)."""
_LOST = {6: "NVML finds it no more", 11: "interrupt problem", 15: "GPU is lost", 16: "GPU requires a reset"}
"""NVML's error numbers for a lost device."""
_XID_EVENT = 8
"""nvmlEventTypeXidCriticalError."""


class MemoryGib(NamedTuple):
    """The memory of a GPU, in GiB."""

    total: float
    free: float


@final
class Health:
    """Monitors one GPU. Without NVML, the GPU counts as healthy."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._board = nvml.Device(gpu.uuid), nvml.Device(gpu.parent or gpu.uuid)
        self._reason = ""
        self._events: Any = None
        if (events := nvml.ask("nvmlEventSetCreate")).reason is None:
            # A slice has no errors and no temperature of its own.
            registered = self._board.ask("nvmlDeviceRegisterEvents", _XID_EVENT, events.value)
            self._events = events.value if registered.reason is None else None

    def broken(self) -> str:
        """Return why the GPU must not be used any more; empty if it is healthy."""
        while self._events is not None and not self._reason:
            event = nvml.ask("nvmlEventSetWait_v2", self._events, 0)
            if event.reason is not None:  # none is left
                break
            if (xid := int(event.value.eventData)) in _XIDS:
                self._reason = f"Xid {xid}: {_XIDS[xid]}"
        self._reason = self._reason or _LOST.get(self._board.ask("nvmlDeviceGetTemperature", 0).code or 0, "")
        return self._reason

    def memory_gib(self) -> MemoryGib | None:
        """Return the GPU's memory; None if NVML does not report it, as with unified memory."""
        memory = self._gpu.ask("nvmlDeviceGetMemoryInfo").value
        return MemoryGib(memory.total / 2**30, memory.free / 2**30) if memory is not None and memory.total else None
