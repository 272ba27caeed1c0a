"""Measured properties of devices, by name."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tools.probe.errors import ProbeError

__all__ = ["DEVICES", "Device", "device_named"]

MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of GPU. Sizes are in bytes.

    Attributes:
        total: the device's memory.
        context: what the driver, cuBLAS handles and loaded kernels take outside torch's allocator.
        blas_workspace: what torch allocates for each cuBLAS handle (`CUBLAS_WORKSPACE_CONFIG`).
        error: the probe's largest relative error on what is reserved, over the steps of benchmarks/probe.py.
    """

    name: str
    capability: tuple[int, int]
    total: int
    multiprocessors: int
    context: int
    blas_workspace: int
    error: float


# blas_workspace: torch's default is 32 MiB from compute capability 9.0 on, and 8.125 MiB before
# (`getChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp).
# context: measured with cuBLAS and kernels loaded (`python -m benchmarks.probe --kernels`), torch 2.11 with CUDA 13.0.
# error: the largest over the 18 steps of `python -m benchmarks.probe` is 2.4 %, rounded up.
DEVICES = {
    "H200": Device("NVIDIA H200", (9, 0), 143771 * MIB, 132, context=771 * MIB, blas_workspace=32 * MIB, error=0.04),
}


def device_named(name: str) -> Device:
    """The device of a name.

    Raises:
        ProbeError: the device is unknown.
    """
    try:
        return DEVICES[name]
    except KeyError:
        raise ProbeError(f"no measured values for the device {name!r}; known are {', '.join(DEVICES)}") from None
