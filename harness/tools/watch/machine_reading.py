"""Samples the machine of a job: its processes, its GPUs, and the disk of its checkpoints."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, final

from harness.machine import nvml
from harness.machine.host import Gpu, Host, has_gpu_driver
from harness.machine.process_tree import ProcessTree
from harness.machine.residency import GpuProbe
from harness.tools.watch.facts import Fact

__all__ = ["MachineReader"]


@final
class MachineReader:
    """Samples the machine of a job."""

    def __init__(self, host: Host, pid: int | None, folder: Path | None, expected_bytes: int) -> None:
        """Args:
        pid: the job's process; None if it is not on this machine.
        folder: where its checkpoints are; None if that is not known.
        expected_bytes: the size of a checkpoint as far as it can be known before the first one; 0 if it cannot.
        """
        self._tree: ProcessTree | None = None
        if pid is not None:
            self._tree = ProcessTree()
            self._tree.add(pid)
        self._delays: dict[str, int] = {}
        self._delays_at = 0.0
        self._probes = [GpuProbe(gpu) for gpu in host.gpus]
        self._gpus, self._folder, self._expected = host.gpus, folder, expected_bytes

    def sample(self, at: float) -> Fact:
        """Return a sample. Unreadable values are omitted."""
        import psutil

        cells: dict[str, Any] = {"watcher_seconds": round(time.process_time(), 3)}
        if self._folder is not None:
            place = next((folder for folder in (self._folder, *self._folder.parents) if folder.exists()), Path("/"))
            cells["free_bytes"] = shutil.disk_usage(place).free
            cells["expected_bytes"] = self._expected or None
        if self._tree is not None:
            cells |= self._tree.read()[0]
            cells["waiting_percent"] = self._waiting(self._tree.delays())
            cells["suspended"] = self._tree.is_suspended or None
            busy = psutil.cpu_percent(None)
            mine = (cells.get("cpu_percent") or 0.0) / (psutil.cpu_count() or 1)
            cells["busy_percent"], cells["others_percent"] = busy, round(max(busy - mine, 0.0), 1)
            if cells.get("rss_bytes") is not None:
                cells["limit_bytes"] = cells["rss_bytes"] + cells["system_available_bytes"]
            cells |= self._gpu()
        return {"fact": "usage", "at": at, **{name: value for name, value in cells.items() if value is not None}}

    def _waiting(self, delays: dict[str, int]) -> float | None:
        """Return the largest share of the time since the last sample that a thread waited for a processor."""
        now, before, began = time.monotonic(), self._delays, self._delays_at
        self._delays, self._delays_at = delays, now
        waited = [delay - before[name] for name, delay in delays.items() if name in before]
        return round(max(waited) / (now - began) / 1e7, 1) if waited and now > began else None

    def _gpu(self) -> dict[str, Any]:
        """Return the readings of the job's GPUs: the sum of memory, the maximum of utilization."""
        assert self._tree is not None
        if not self._probes:
            return {} if has_gpu_driver() else {"gpu_seen": False}
        found: dict[str, Any] = {}
        seen = []
        for probe, gpu in zip(self._probes, self._gpus, strict=True):
            readings, _ = probe.read(self._tree.owns)
            seen.append(probe.residency().seen)
            name, memory = "gpu_process_memory_bytes", readings.get("gpu_process_memory_bytes")
            if seen[-1] is None:
                name, memory = "gpu_only_bytes", _of_only_process(gpu)
            if memory is None and seen[-1] is not True:
                continue
            if seen[-1] is not None or len(self._gpus) == 1:  # with several GPUs, some may belong to another job
                found[name] = found.get(name, 0) + (memory or 0)
                found["gpu_limit_bytes"] = found.get("gpu_limit_bytes", 0) + (gpu.memory_bytes or 0)
            for column in ("gpu_utilisation_percent", "gpu_power_watts", "gpu_temperature_celsius"):
                if readings.get(column) is not None:
                    found[column] = max(found.get(column, 0), readings[column])
        found["gpu_seen"] = True if True in seen else None if None in seen else False
        found["gpus"] = sum(is_there is True for is_there in seen)
        return found


def _of_only_process(gpu: Gpu) -> int | None:
    """Return the memory of the only process on a GPU; None unless there is exactly one.

    In a container, process ids may not match. If the job is known to use the GPU, the only process belongs to it.
    """
    listed = nvml.Device(gpu.uuid).processes()
    return listed.value[0].memory_bytes if listed.reason is None and len(listed.value) == 1 else None
