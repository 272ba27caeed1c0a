"""Hosts and GPUs that do not exist."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from harness.machine.host import Gpu, Host

GIB = 2**30


def a_gpu(**changes: Any) -> Gpu:
    gpu = Gpu(0, "GPU-a", "NVIDIA GeForce RTX 4060", "8.9", 8 * GIB, "NVML", False)
    return dataclasses.replace(gpu, **changes)


def a_host(*gpus: Gpu, **changes: Any) -> Host:
    host = Host(
        hostname="h", machine="x86_64", kernel="Linux 6", cpu_count=4, memory_bytes=16 * GIB, memory_source="MemTotal",
        disk=Path("/d"), disk_free_bytes=50 * GIB, gpus=gpus, gpu_reason=None if gpus else "no driver", driver=None,
        cuda_driver_version=None,
    )  # fmt: skip
    return dataclasses.replace(host, **changes)
