"""The ways in which the trainers of `benchmarks/wasted_trainers.py` waste a GPU."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

GPU_DEFECTS = {
    "gpu-idle": "gpu_unused",
    "gpu-memory-creeping": "memory_creeps",
    "ptx-compiled": "kernels_compiled",
    "triton-recompiled": "kernels_compiled",
    "allocations-refused": "allocations_refused",
}
"""Those that need a GPU. The first one holds a GPU, and trains on the CPU."""
ON_CPU = ("silent-cpu-fallback", "gpu-idle")
"""Defects that train on the CPU and do not say so."""
PTX = b".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry kernel%d() { ret; }\n"


def waste_gpu(defect: str, step: int, kept: list[Any]) -> None:
    """Do what a defect of GPU_DEFECTS does after a step. What it keeps is added to `kept`."""
    import torch

    if defect == "gpu-idle" and step == 1:
        kept.append(torch.empty(1 << 20, device="cuda"))
    elif defect == "gpu-memory-creeping":
        kept.append(torch.zeros(1 << 22, device="cuda"))
    elif defect == "triton-recompiled" and step % 10 == 0:
        from benchmarks.wasted_kernel import store_step

        store_step[(1,)](torch.empty(1, device="cuda", dtype=torch.int32), step)
    elif defect == "ptx-compiled":
        module, driver = ctypes.c_void_p(), ctypes.CDLL("libcuda.so.1")
        status = driver.cuModuleLoadData(ctypes.byref(module), PTX % step)
        if status != 0:
            raise RuntimeError(f"cuModuleLoadData of PTX answered {status}, so nothing was compiled")
    elif defect == "allocations-refused" and step % 5 == 0:
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.empty(1 << 44, device="cuda")
