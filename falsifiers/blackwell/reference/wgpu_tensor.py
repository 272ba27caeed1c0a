"""Tensors on a wgpu device, so that a whole block runs there without copies to the host."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from falsifiers.blackwell.reference.wgpu_device import Device, Kernel, Storage, Window

_ATEN: Final = torch.ops.aten
_VIEWS: Final = frozenset(
    {
        _ATEN.view.default,
        _ATEN._unsafe_view.default,
        _ATEN.transpose.int,
        _ATEN.unsqueeze.default,
        _ATEN.detach.default,
        _ATEN.alias.default,
    }
)
"""Operations that change only shape and strides. torch computes the result on a tensor without data."""
_COPIES: Final = frozenset({_ATEN.clone.default, _ATEN._to_copy.default})
_COPY: Final = Kernel(("copy.wgsl",), "copy", (1, 2))
_COPY_THREADS: Final = 256


class WgpuTensor(Tensor):
    """A float32 tensor whose elements are in a `Storage`.

    torch keeps shape and strides. Layout operations (view, transpose, contiguous, reshape) work; arithmetic is done by
    the backend. `cpu()` fetches the tensor. Its device is `meta`, because torch sees a shape without data.
    """

    storage_on_device: Storage

    @staticmethod
    def __new__(cls, storage: Storage, like: Tensor) -> WgpuTensor:
        """A tensor of the shape, strides and offset of `like`, a tensor of the device `meta`."""
        tensor: WgpuTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            like.shape,
            strides=like.stride(),
            storage_offset=like.storage_offset(),
            dtype=torch.float32,
            device=torch.device("meta"),
        )
        tensor.storage_on_device = storage
        return tensor

    @classmethod
    def empty(cls, device: Device, *shape: int) -> WgpuTensor:
        """A contiguous, uninitialised tensor."""
        like = torch.empty(shape, device="meta")
        return cls(device.allocate(like.nbytes), like)

    @classmethod
    def of(cls, device: Device, tensor: Tensor) -> WgpuTensor:
        """A copy of a float32 tensor of another device.

        Raises:
            TypeError: the dtype is not float32, the only one that these WGSL kernels use.
        """
        if tensor.dtype != torch.float32:
            raise TypeError(f"the wgpu backend computes in float32; this tensor is {tensor.dtype}: convert it first")
        dense = tensor.detach().contiguous()
        return cls(device.upload(dense), torch.empty_like(dense, device="meta"))

    def fetch(self, device: torch.device) -> Tensor:
        """A copy on one of torch's devices."""
        fetched = torch.empty(self.shape, device=device)
        packed = self.packed()
        packed.storage_on_device.device.download(packed.storage_on_device, fetched)
        return fetched

    def packed(self) -> WgpuTensor:
        """This tensor if it is contiguous from the start of its storage, else a copy that is."""
        if self.is_contiguous() and not self.storage_offset():
            return self
        device = self.storage_on_device.device
        copy = WgpuTensor.empty(device, *self.shape)
        missing = 4 - self.dim()
        if missing < 0:
            raise NotImplementedError(f"copies of strided tensors have up to 4 dimensions; this one has {self.dim()}")
        shape, strides = [1] * missing + list(self.shape), [0] * missing + list(self.stride())
        values = [*shape, *strides, self.storage_offset(), self.numel()]
        device.run(_COPY, [_everything(self), whole(copy)], values, -(-self.numel() // _COPY_THREADS))
        return copy

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        del tensor_contents
        return f"WgpuTensor({tuple(self.shape)}, on {self.storage_on_device.device.name})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run views and copies; refuse all other operations, because the backend has no kernel for them."""
        del types
        kwargs = kwargs or {}
        if func in _VIEWS:
            tensor: WgpuTensor = args[0]
            twin = torch.empty(_reach(tensor), device="meta").as_strided(
                tensor.shape, tensor.stride(), tensor.storage_offset()
            )
            return cls(tensor.storage_on_device, func(twin, *args[1:], **kwargs))
        if func in _COPIES:
            target = kwargs.get("device")
            if target is not None and torch.device(target).type != "meta":
                return args[0].fetch(torch.device(target)).to(kwargs.get("dtype") or torch.float32)
            return args[0].packed()
        raise NotImplementedError(f"the wgpu backend does not support {func}; fetch the tensor with .cpu() first")


def whole(tensor: WgpuTensor) -> Window:
    """All bytes of a packed tensor."""
    return Window(tensor.storage_on_device, 0, max(16, -(-tensor.numel() // 4) * 16))


def _everything(tensor: WgpuTensor) -> Window:
    """The bytes from the start of the storage to the last element of a strided tensor."""
    return Window(tensor.storage_on_device, 0, max(16, -(-_reach(tensor) // 4) * 16))


def _reach(tensor: Tensor) -> int:
    if not tensor.numel():
        return tensor.storage_offset()
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.storage_offset() + steps + 1
