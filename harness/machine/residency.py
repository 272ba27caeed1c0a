"""Samples one GPU through NVML, and determines whether the driver lists a trial's processes on it."""

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
_NVML_TEMPERATURE_GPU, _NVML_CLOCK_SM = 0, 1
_COLUMNS: dict[str, tuple[Callable[[Any], float | int], str, *tuple[int, ...]]] = {
    "gpu_utilisation_percent": (lambda answer: int(answer.gpu), "nvmlDeviceGetUtilizationRates"),
    "gpu_memory_used_bytes": (lambda answer: int(answer.used), "nvmlDeviceGetMemoryInfo"),
    "gpu_power_watts": (lambda milliwatts: round(milliwatts / 1000, 1), "nvmlDeviceGetPowerUsage"),
    "gpu_temperature_celsius": (int, "nvmlDeviceGetTemperature", _NVML_TEMPERATURE_GPU),
    "gpu_sm_clock_mhz": (int, "nvmlDeviceGetClockInfo", _NVML_CLOCK_SM),
}
"""For each column: a function that reads the answer, NVML's function, and its arguments after the device."""


@final
@dataclass(frozen=True, slots=True)
class DriverResidency:
    """Whether the driver lists a trial on its leased GPU. The trial itself cannot forge this."""

    seen: bool | None
    """True if NVML listed a process of the trial in any sample. False if NVML answered every time and listed none.
    None if unknown."""
    peak_bytes: int | None
    """Peak device memory of the trial's processes together, in bytes, as reported by NVML."""
    reason: str | None
    """Why `seen` is None; if it is not, why `peak_bytes` is None."""


@final
class GpuProbe:
    """Samples one GPU through NVML."""

    def __init__(self, gpu: Gpu | None) -> None:
        self._device = None if gpu is None else nvml.Device(gpu.uuid)
        self._answers = 0
        self._seen = False
        self._peak: int | None = None
        self._failure: str | None = None
        self._memory_reason: str | None = None
        self._strangers: Set[int] = frozenset()
        self._untranslated = False

    def read(self, owns: Callable[[int], bool]) -> Readings:
        """Take one sample. `owns` tells whether a process id belongs to the trial."""
        cells: dict[str, float | int | None] = dict.fromkeys((*_COLUMNS, _PROCESS_MEMORY))
        if self._device is None:
            return cells, dict.fromkeys(cells, "no GPU was leased")
        reasons: dict[str, str] = {}
        for column, (read, function, *arguments) in _COLUMNS.items():
            answer = self._device.ask(function, *arguments)
            if answer.reason is not None:
                reasons[column] = answer.reason
            else:
                cells[column] = read(answer.value)
        cells[_PROCESS_MEMORY] = self._read_processes(self._device, owns)
        if self._memory_reason is not None and cells[_PROCESS_MEMORY] is None:
            reasons[_PROCESS_MEMORY] = self._memory_reason
        return cells, reasons

    def residency(self) -> DriverResidency:
        """Return the result of all samples."""
        if self._device is None:
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

    def _read_processes(self, device: nvml.Device, owns: Callable[[int], bool]) -> int | None:
        answer = device.processes()
        if answer.reason is not None:
            self._failure = self._memory_reason = answer.reason
            return None
        self._answers += 1
        listed: tuple[nvml.Process, ...] = answer.value
        self._note_strangers({process.pid for process in listed})
        own = [process for process in listed if owns(process.pid)]
        if not own:
            self._memory_reason = "NVML did not list the trial's processes on this GPU"
            return None
        self._seen = True
        known = [process.memory_bytes for process in own if process.memory_bytes is not None]
        if not known:
            self._memory_reason = "NVML lists the process but not how much memory it has"
            return None
        self._peak = max(self._peak or 0, sum(known))
        return sum(known)

    def _note_strangers(self, pids: Set[int]) -> None:
        """Detect ids without a process here. The driver then uses another PID namespace, and may mean this trial.

        An id counts if two samples in a row list it, because a process may end between NVML's answer and our check. A
        driver that translates ids lists 0 for a process that we cannot see. That process is not ours.
        """
        other_processes = {pid for pid in pids if pid != 0 and not os.path.exists(f"/proc/{pid}")}
        self._untranslated = self._untranslated or bool(other_processes & self._strangers)
        self._strangers = other_processes
