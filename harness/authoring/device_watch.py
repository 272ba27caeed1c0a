"""Watches a GPU through NVML while another process uses it. NVML creates no CUDA context.

    with DeviceWatch() as watch:
        run_another_engine()
    watch.peak_bytes, watch.was_used, watch.capability

CUDA_VISIBLE_DEVICES must leave one GPU visible, as it does in a trial.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Final, Self, final

from harness.machine import nvml
from harness.machine.host import Gpu, probe
from harness.machine.process_control import descendants
from harness.machine.process_tree import stat_fields

__all__ = ["DeviceWatch"]

_PERIOD_SECONDS: Final = 0.2


@final
class DeviceWatch:
    """Samples the memory and the processes of the device during a `with` block."""

    def __init__(self) -> None:
        """Find the GPU. Without one, `reason` states why, and nothing is sampled."""
        leased = _leased()
        self.reason = leased if isinstance(leased, str) else ""
        """Why nothing is sampled, or why the memory is unknown; empty otherwise."""
        self.capability: int | None = None
        """The compute capability, such as 121 for 12.1; None if unknown."""
        self.peak_bytes: int | None = None
        """Peak memory in use on the device, in bytes. With unified memory, NVML reports only the memory of each
        process; this is then the peak of their sum. None if NVML reports neither."""
        self.free_bytes: int | None = None
        """Free memory in bytes when the watch began; None if NVML does not report it."""
        self._earlier_pids: frozenset[int] = frozenset()
        self._users: set[int] = set()
        self._foreign_pids: set[int] = set()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        if not isinstance(leased, str):
            self.capability = _number(leased.compute_capability)
        self._device = None if isinstance(leased, str) else nvml.Device(leased.uuid)

    @property
    def users(self) -> int:
        """Number of processes that appeared on the device and descend from this process.

        A process that /proc does not list, such as one of another container, counts too.
        """
        return len(self._users - self._foreign_pids)

    @property
    def was_used(self) -> bool:
        """Whether a process appeared on the device during the watch."""
        return bool(self._users)

    def __enter__(self) -> Self:
        if self._device is not None:
            memory = self._device.ask("nvmlDeviceGetMemoryInfo")
            self.free_bytes = None if memory.reason is not None else int(memory.value.free)
            listed = self._device.processes()
            self._earlier_pids = frozenset(process.pid for process in listed.value or ())
            self._thread = threading.Thread(
                target=self._sample_until_the_end, args=(self._device,), name="device-watch", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)

    def _sample_until_the_end(self, device: nvml.Device) -> None:
        while True:
            self._sample(device)
            if self._end.wait(_PERIOD_SECONDS):
                return

    def _sample(self, device: nvml.Device) -> None:
        before = descendants(os.getpid())
        listed = device.processes()
        if listed.reason is None:
            new = {process.pid for process in listed.value} - self._earlier_pids - self._users
            if new:
                # A descendant may start or exit between these reads. A process that has exited is not foreign.
                alive = {pid for pid in new if (stat_fields(pid) or [b"Z"])[0] != b"Z"}
                self._foreign_pids |= alive.difference(before, descendants(os.getpid()))
                self._users |= new
        answer = device.ask("nvmlDeviceGetMemoryInfo")
        if answer.reason is None:
            self._note(int(answer.value.used))
        elif listed.reason is not None:
            self.reason = answer.reason
        elif listed.value and all(process.memory_bytes is not None for process in listed.value):
            self._note(sum(process.memory_bytes for process in listed.value))
        elif listed.value:
            self.reason = "NVML reports neither the memory of the device nor that of its processes"

    def _note(self, used: int) -> None:
        self.peak_bytes = max(self.peak_bytes or 0, used)


def _leased() -> Gpu | str:
    """Return the only visible GPU, or why there is not exactly one."""
    host = probe()
    if not host.gpus:
        return host.gpu_reason or "this machine has no GPU"
    if len(host.gpus) > 1:
        return f"{len(host.gpus)} GPUs are visible here, so the one in use is unknown; set CUDA_VISIBLE_DEVICES to one"
    return host.gpus[0]


def _number(capability: str | None) -> int | None:
    """Return 121 for "12.1"."""
    digits = (capability or "").replace(".", "")
    return int(digits) if digits.isdecimal() else None
