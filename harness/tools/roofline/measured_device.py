"""The identity and the present clocks of the device that is measured."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import psutil
import torch

from harness.base import regular_file
from harness.machine import nvml

__all__ = ["clocks", "identity"]

_NVML_CLOCK_SM, _NVML_CLOCK_MEM = 1, 2
_READINGS = {
    "sm_mhz": ("nvmlDeviceGetClockInfo", _NVML_CLOCK_SM),
    "memory_mhz": ("nvmlDeviceGetClockInfo", _NVML_CLOCK_MEM),
    "largest_sm_mhz": ("nvmlDeviceGetMaxClockInfo", _NVML_CLOCK_SM),
}


def identity(kind: str) -> dict[str, Any]:
    """Return what a measured speed holds for: the device, its driver, and the versions of what drives it.

    On a CPU the driver is the kernel of the operating system.
    """
    software = {"torch": str(torch.__version__), "cuda": torch.version.cuda}
    if kind != "cuda":
        hardware = {"name": _processor(), "driver": platform.release(), "threads": torch.get_num_threads()}
        return {"kind": kind, **hardware, **software}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    driver = nvml.ask("nvmlSystemGetDriverVersion").value
    hardware = {"name": properties.name, "driver": driver, "multiprocessors": properties.multi_processor_count}
    return {"kind": kind, **hardware, "uuid": str(getattr(properties, "uuid", "")), **software}


def clocks(kind: str) -> dict[str, float]:
    """Return clocks in MHz, power in watts: what can be read of them."""
    if kind != "cuda":
        frequency = psutil.cpu_freq()
        return {"mhz": frequency.current} if frequency else {}
    device = nvml.Device(f"GPU-{identity(kind)['uuid'].removeprefix('GPU-')}")
    readings = {name: device.ask(call, clock).value for name, (call, clock) in _READINGS.items()}
    milliwatts = device.ask("nvmlDeviceGetPowerUsage").value
    readings["watts"] = None if milliwatts is None else milliwatts / 1000
    return {name: float(value) for name, value in readings.items() if value is not None}


def _processor() -> str:
    try:
        lines = regular_file.read(Path("/proc/cpuinfo")).decode("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
