"""Samples one GPU through NVML, and tells whether the driver saw a trial's processes on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from harness.machine import nvml
from harness.machine.process_tree import Readings

if TYPE_CHECKING:
    from harness.machine.host import Gpu

__all__ = ["DriverResidency", "GpuProbe"]

_PROCESS_MEMORY = "gpu_process_memory_bytes"
_COLUMNS: dict[str, tuple[str, str | None, Callable[[Any], float | int]]] = {
    "gpu_utilisation_percent": ("nvmlDeviceGetUtilizationRates", None, lambda answer: int(answer.gpu)),
    "gpu_memory_used_bytes": ("nvmlDeviceGetMemoryInfo", None, lambda answer: int(answer.used)),
    "gpu_power_watts": ("nvmlDeviceGetPowerUsage", None, lambda milliwatts: round(milliwatts / 1000, 1)),
    "gpu_temperature_celsius": ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU", int),
    "gpu_sm_clock_mhz": ("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM", int),
}
"""For each column: NVML's function, its constant argument after the device, and a function that reads the answer."""


@final
@dataclass(frozen=True, slots=True)
class DriverResidency:
    """Whether the driver saw a trial on the GPU that it leased. The trial itself cannot forge this."""

    seen: bool | None
    """True if NVML listed a process of the trial in any sample. False if NVML answered every time and listed none.
    None if unknown."""
    peak_bytes: int | None
    """The largest device memory of the trial's processes together, in bytes, as NVML reports it."""
    reason: str | None
    """Why `seen` is None; if it is not, why `peak_bytes` is None."""


@final
class GpuProbe:
    """Samples one GPU through NVML."""

    def __init__(self, gpu: Gpu | None) -> None:
        self._gpu = gpu
        self._device: tuple[nvml.Session, Any] | None = None
        self._answers = 0
        self._seen = False
        self._peak: int | None = None
        self._failure: str | None = None
        self._memory_reason: str | None = None
        self._strangers: Set[int] = frozenset()
        self._untranslated = False

    def read(self, owns: Callable[[int], bool]) -> Readings:
        """Take one sample. `owns` tells whether a process id belongs to the trial."""
        device = self._connect()
        if isinstance(device, str):
            self._failure = device
            columns = (*_COLUMNS, _PROCESS_MEMORY)
            return dict.fromkeys(columns), dict.fromkeys(columns, device)
        session, handle = device
        cells: dict[str, float | int | None] = {}
        reasons: dict[str, str] = {}
        for column, (function, constant, read) in _COLUMNS.items():
            answer = session.ask(function, handle, *([] if constant is None else [session.constant(constant)]))
            cells[column] = None if answer.reason is not None else read(answer.value)
            if answer.reason is not None:
                reasons[column] = answer.reason
        cells[_PROCESS_MEMORY] = self._read_processes(session, handle, owns)
        if self._memory_reason is not None and cells[_PROCESS_MEMORY] is None:
            reasons[_PROCESS_MEMORY] = self._memory_reason
        return cells, reasons

    def residency(self) -> DriverResidency:
        """Return the result of all samples."""
        if self._gpu is None:
            return DriverResidency(None, None, "no GPU was leased")
        if self._seen:
            reason = None if self._peak is not None else self._memory_reason
            return DriverResidency(True, self._peak, reason)
        if self._failure is not None:
            return DriverResidency(None, None, self._failure)
        if not self._answers:
            return DriverResidency(None, None, "nothing was sampled")
        if self._untranslated:
            reason = (
                "NVML lists processes by ids that no process here has, as in a container with its own PID namespace; "
                "run the harness in the host's PID namespace"
            )
            return DriverResidency(None, None, reason)
        return DriverResidency(False, None, None)

    def _connect(self) -> tuple[nvml.Session, Any] | str:
        if self._gpu is None:
            return "no GPU was leased"
        if self._device is None:
            session = nvml.connect()
            if isinstance(session, str):
                return session
            handle = nvml.handle_of(session, self._gpu.uuid)
            if handle.reason is not None:
                return handle.reason
            self._device = session, handle.value
        return self._device

    def _read_processes(self, session: nvml.Session, handle: Any, owns: Callable[[int], bool]) -> int | None:
        answer = nvml.processes(session, handle)
        if answer.reason is not None:
            self._failure = self._memory_reason = answer.reason
            return None
        self._answers += 1
        listed: tuple[nvml.Process, ...] = answer.value
        self._note_strangers({process.pid for process in listed})
        ours = [process for process in listed if owns(process.pid)]
        if not ours:
            self._memory_reason = "NVML did not list the trial's processes on this GPU"
            return None
        self._seen = True
        known = [process.memory_bytes for process in ours if process.memory_bytes is not None]
        if not known:
            self._memory_reason = "NVML lists the process but not how much memory it has"
            return None
        self._peak = max(self._peak or 0, sum(known))
        return sum(known)

    def _note_strangers(self, pids: Set[int]) -> None:
        """Detect ids that no process here has. The driver then uses another PID namespace, and may mean our trial.

        An id counts if two samples in a row list it, because a process may end between NVML's answer and our check. A
        driver that translates ids lists 0 for a process that we cannot see. That process is not ours.
        """
        other_processes = {pid for pid in pids if pid != 0 and not os.path.exists(f"/proc/{pid}")}
        self._untranslated = self._untranslated or bool(other_processes & self._strangers)
        self._strangers = other_processes
