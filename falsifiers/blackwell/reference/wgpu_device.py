"""A Vulkan adapter through wgpu: its choice, buffers, pipelines and commands.

This module knows no operations and does not use CUDA.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
import wgpu
from torch import Tensor

with contextlib.suppress(ImportError):
    # Triton has its own LLVM, which some operations of torch load. If Mesa's llvmpipe has loaded its LLVM before, the
    # process ends with SIGSEGV (triton 3.7 after Mesa 22.3). In the other order both work.
    import triton._C.libtriton  # noqa: F401

_SOURCES: Final = Path(__file__).parent / "wgsl"
_CPU: Final = "CPU"
_WAITING: Final = 64
"""Recorded dispatches that are submitted together, so that the adapter works while Python records more."""
_IDLE_BYTES: Final = 256 * 2**20
"""Bytes of idle buffers that are kept for reuse. The limit is small because a fallback runs when memory is short."""
_STORAGE: Final = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
_STAGING: Final = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
_LIMITS: Final = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
)
"""Limits requested beyond WebGPU's defaults, which are 256 MiB per buffer and 16 KiB of shared memory."""


class NoAdapter(RuntimeError):
    """There is no Vulkan adapter of the requested kind."""


class DeviceLimit(RuntimeError):
    """A tensor is larger than the adapter can bind, and cannot be processed in parts."""


def choose_adapter(wanted: str) -> wgpu.GPUAdapter:
    """The requested Vulkan adapter. An adapter that computes on the CPU is not a GPU, whatever its name.

    Args:
        wanted: "gpu", a discrete GPU if there is one, else another; "cpu", software such as Mesa's llvmpipe; "any", a
            GPU if there is one, else software; or a part of the adapter's name, such as "H200".

    Raises:
        NoAdapter: there is none. The message lists all adapters.
    """
    adapters = [adapter for adapter in wgpu.gpu.enumerate_adapters_sync() if adapter.info["backend_type"] == "Vulkan"]
    order = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2, _CPU: 4}
    adapters.sort(key=lambda adapter: order.get(adapter.info["adapter_type"], 3))
    for adapter in adapters:
        kind = "cpu" if adapter.info["adapter_type"] == _CPU else "gpu"
        if wanted in ("any", kind) or (wanted not in ("gpu", "cpu") and wanted in adapter.info["device"]):
            return adapter
    there = ", ".join(f"{adapter.info['device']} ({adapter.info['adapter_type']})" for adapter in adapters) or "none"
    raise NoAdapter(
        f"no Vulkan adapter {wanted!r}; there are: {there}. A GPU needs its driver's Vulkan library; a software "
        "adapter comes with Mesa (apt install mesa-vulkan-drivers libvulkan1)"
    )


@dataclass(frozen=True)
class Kernel:
    """One compute pipeline, and the key under which it is compiled once.

    Attributes:
        sources: names of .wgsl files, in the order in which they are concatenated.
        entry: the function that runs.
        bindings: the numbers of its storage bindings, in the order of the windows of `Device.run`.
        constants: values of `override` declarations.
    """

    sources: tuple[str, ...]
    entry: str
    bindings: tuple[int, ...]
    constants: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Window:
    """A part of a buffer, in bytes. The offset is a multiple of the adapter's alignment."""

    storage: Storage
    offset: int
    size: int


class Storage:
    """Bytes on the adapter, which return to the pool when the last reference is gone."""

    def __init__(self, device: Device, buffer: wgpu.GPUBuffer) -> None:
        self.device = device
        self.buffer = buffer

    def __del__(self) -> None:
        """Return the buffer. Commands that use it were recorded before any later ones."""
        self.device._take_back(self.buffer)


class Device:
    """An open adapter. Commands run in the order in which they were recorded, and are submitted in batches."""

    def __init__(self, adapter: wgpu.GPUAdapter, *, binding_bytes: int | None = None) -> None:
        """Open the adapter with its largest limits.

        Args:
            binding_bytes: a lower limit for one binding, with which tests make operations run in parts.
        """
        self.name: str = adapter.info["device"]
        self.kind: str = adapter.info["adapter_type"]
        limits = {name: adapter.limits[name] for name in _LIMITS}
        self._device = adapter.request_device_sync(required_limits=limits)
        self.binding_bytes: int = min(binding_bytes or 2**62, limits["max-storage-buffer-binding-size"]) // 16 * 16
        self.buffer_bytes: int = limits["max-buffer-size"]
        self.alignment: int = adapter.limits["min-storage-buffer-offset-alignment"]
        self.groups_a_dimension: int = adapter.limits["max-compute-workgroups-per-dimension"]
        self.shared_bytes: int = limits["max-compute-workgroup-storage-size"]
        self.dispatches = 0
        """Launches since the device was opened."""
        self.allocated_buffers = 0
        """Buffers created since then, without reused ones."""
        self.uploaded_bytes = 0
        self.downloaded_bytes = 0
        self._pipelines: dict[Kernel, tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroupLayout]] = {}
        self._uniform = lru_cache(maxsize=4096)(self._new_uniform)
        self._idle: defaultdict[int, list[wgpu.GPUBuffer]] = defaultdict(list)
        self._idle_bytes = 0
        self._encoder: wgpu.GPUCommandEncoder | None = None
        self._pass: wgpu.GPUComputePassEncoder | None = None
        self._recorded = 0

    @property
    def pipelines(self) -> tuple[Kernel, ...]:
        """The compiled kernels, in order."""
        return tuple(self._pipelines)

    def allocate(self, count: int) -> Storage:
        """Uninitialised room for `count` bytes; raises DeviceLimit if no buffer can be so large."""
        size = _rounded(count)
        if size > self.buffer_bytes:
            raise DeviceLimit(
                f"a tensor of {count} bytes exceeds the largest buffer of {self.name}, which has "
                f"{self.buffer_bytes}; use a shorter sequence or a smaller batch"
            )
        if self._idle[size]:
            self._idle_bytes -= size
            return Storage(self, self._idle[size].pop())
        self.allocated_buffers += 1
        return Storage(self, self._device.create_buffer(size=size, usage=_STORAGE))

    def upload(self, tensor: Tensor) -> Storage:
        """The bytes of a contiguous tensor on any device; from CUDA through pinned memory."""
        storage = self.allocate(tensor.nbytes)
        if tensor.numel():
            self.flush()  # commands recorded before must not see the new bytes
            host = torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor) if tensor.is_cuda else tensor
            self._device.queue.write_buffer(storage.buffer, 0, host.numpy())
            self.uploaded_bytes += tensor.nbytes
        return storage

    def download(self, storage: Storage, tensor: Tensor) -> None:
        """Wait for all commands, then fill a contiguous tensor on any device from the start of the storage."""
        self.flush()
        if not tensor.numel():
            return
        size = tensor.nbytes
        staging = self._device.create_buffer(size=size, usage=_STAGING)
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(storage.buffer, 0, staging, 0, size)
        self._device.queue.submit([encoder.finish()])
        staging.map_sync(wgpu.MapMode.READ)
        host = torch.empty_like(tensor, device="cpu", pin_memory=True) if tensor.is_cuda else tensor
        np.copyto(host.numpy().reshape(-1).view(np.uint8), np.frombuffer(staging.read_mapped(copy=False), np.uint8))
        staging.unmap()
        staging.destroy()
        if host is not tensor:
            tensor.copy_(host)
        self.downloaded_bytes += size

    def run(
        self, kernel: Kernel, windows: Sequence[Window], values: Sequence[float], groups: int, depth: int = 1
    ) -> None:
        """Record one launch.

        Args:
            windows: one for each of the kernel's bindings.
            values: the kernel's uniform struct; an int becomes a u32, a float an f32.
            groups: number of workgroups, folded into two dimensions if one is too short.
            depth: workgroups in the third dimension.
        """
        if not groups:
            return
        pipeline, layout = self._pipeline(kernel)
        bound = [(0, self._uniform(_packed(values)), 0, None)] + [
            (number, window.storage.buffer, window.offset, window.size)
            for number, window in zip(kernel.bindings, windows, strict=True)
        ]
        entries = [
            {"binding": number, "resource": {"buffer": buffer, "offset": offset, "size": size or buffer.size}}
            for number, buffer, offset, size in bound
        ]
        if self._pass is None:
            self._encoder = self._device.create_command_encoder()
            self._pass = self._encoder.begin_compute_pass()
        self._pass.set_pipeline(pipeline)
        self._pass.set_bind_group(0, self._device.create_bind_group(layout=layout, entries=entries))
        across = min(groups, self.groups_a_dimension)
        self._pass.dispatch_workgroups(across, math.ceil(groups / across), depth)
        self.dispatches += 1
        self._recorded += 1
        if self._recorded == _WAITING:
            self.flush()

    def flush(self) -> None:
        if self._pass is not None and self._encoder is not None:
            self._pass.end()
            self._device.queue.submit([self._encoder.finish()])
        self._encoder = self._pass = None
        self._recorded = 0

    def wait(self) -> None:
        """Submit the recorded commands, and wait until the adapter has finished all work."""
        self.flush()
        # on_submitted_work_done_sync of wgpu 0.32 raises TypeError, so wait for one more submission.
        marker = self._device.create_buffer(size=16, usage=_STAGING)
        encoder = self._device.create_command_encoder()
        encoder.clear_buffer(marker)
        self._device.queue.submit([encoder.finish()])
        marker.map_sync(wgpu.MapMode.READ)
        marker.unmap()
        marker.destroy()

    def _pipeline(self, kernel: Kernel) -> tuple[wgpu.GPUComputePipeline, wgpu.GPUBindGroupLayout]:
        cached = self._pipelines.get(kernel)
        if cached is None:
            module = self._device.create_shader_module(code="\n".join(map(_text, kernel.sources)))
            stage = {"module": module, "entry_point": kernel.entry, "constants": dict(kernel.constants)}
            pipeline = self._device.create_compute_pipeline(layout="auto", compute=stage)
            cached = self._pipelines[kernel] = (pipeline, pipeline.get_bind_group_layout(0))
        return cached

    def _new_uniform(self, content: bytes) -> wgpu.GPUBuffer:
        return self._device.create_buffer_with_data(data=content, usage=wgpu.BufferUsage.UNIFORM)

    def _take_back(self, buffer: wgpu.GPUBuffer) -> None:
        if self._idle_bytes + buffer.size <= _IDLE_BYTES:
            self._idle_bytes += buffer.size
            self._idle[buffer.size].append(buffer)


@lru_cache
def _text(source: str) -> str:
    return (_SOURCES / source).read_text(encoding="utf-8")


def _packed(values: Sequence[float]) -> bytes:
    content = b"".join(struct.pack("<I" if isinstance(value, int) else "<f", value) for value in values)
    return content + bytes(-len(content) % 16)


def _rounded(count: int) -> int:
    """The size rounded up to one of eight steps per power of two: at most an eighth larger."""
    step = max(256, 2 ** max(0, count.bit_length() - 4))
    return max(step, math.ceil(count / step) * step)
