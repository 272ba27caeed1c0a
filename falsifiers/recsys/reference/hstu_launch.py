"""Launches of the kernels of HSTU attention; compiled on CUDA, interpreted on a CPU.

The interpreter truncates to bfloat16 instead of rounding, so it computes bfloat16 in float32.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as HopperDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from falsifiers.recsys.reference.interpreter import interpreted

_THREAD = threading.local()


@dataclass
class Launch:
    """A kernel with all its arguments except tensors.

    Triton's own launcher takes longer to find a compiled kernel than a short one runs, so `run` keeps the result. The
    key covers everything but the fixed arguments here, if addresses are multiples of 16.

    Attributes:
        kernel: `over_keys` or `over_rows`, or one of `hstu_hopper`.
        numbers: the arguments after the tensors.
        tma: the tensor memory accelerator can load blocks of `tile` rows; it also needs such addresses.
        behind: the constants in the form of `run`, after the numbers.
        otherwise: for a kernel of `hstu_hopper`, the launch for other addresses than such multiples. That kernel loads
            all blocks by TMA: those of q, of the gradient of the output, of k and of v.
    """

    kernel: Any
    programs: int
    numbers: tuple[float, ...]
    constants: dict[str, Any]
    options: dict[str, int]
    tma: bool
    tile: int
    run: Callable[..., object] | None = None
    behind: tuple[Any, ...] = ()
    otherwise: "Launch | None" = None

    def __call__(self, tensors: tuple[Tensor, ...], tiled: tuple[Tensor, ...], counts: tuple[Tensor, ...]) -> None:
        """Run the kernel; compiled on CUDA, interpreted on a CPU. It writes the tensors from the fifth on."""
        q = tensors[0]
        if self.programs == 0 or len(q) == 0:
            return
        if not q.is_cuda:
            self._interpret(tensors, counts)
            return
        addresses = [tensor.data_ptr() for tensor in tensors]
        last = [count.data_ptr() for count in counts]
        aligned = not any([address & 15 for address in addresses + last])  # noqa: C419 - a list is faster
        describe: Callable[[Tensor, int], object] = _descriptor
        if self.otherwise is not None:
            if not aligned:
                self.otherwise(tensors, tiled, counts)
                return
            tiled, describe = (tensors[0], tensors[3], tensors[1], tensors[2]), _hopper_descriptor
        tma = self.tma and aligned
        with torch.cuda.device_of(q):
            _bind_context()
            if self.run is not None and aligned:
                tiles = [_Tiled(tensor) if tma else tensor.data_ptr() for tensor in tiled]
                self.run(*addresses, *tiles, *last, *self.numbers, *self.behind)
                return
            tiles = [describe(tensor, self.tile) if tma else tensor for tensor in tiled]
            arguments, constants = (*tensors, *tiles, *counts, *self.numbers), {**self.constants, "use_tma": tma}
            compiled = self.kernel[(self.programs,)](*arguments, **constants, **self.options)
            if aligned:
                self.behind = tuple(constants[name] for name in self.kernel.arg_names[len(arguments) :])
                self.run = compiled[(self.programs, 1, 1)]

    def _interpret(self, tensors: tuple[Tensor, ...], counts: tuple[Tensor, ...]) -> None:
        """Run the kernel on a CPU. bfloat16 tensors are copied to float32 with equal strides."""
        copies = tensors
        if tensors[0].dtype is torch.bfloat16:
            copies = tuple(
                torch.empty_strided(tensor.shape, tensor.stride(), dtype=torch.float32).copy_(tensor)
                for tensor in tensors
            )
        with numpy.errstate(over="ignore"):  # silu of a large negative score divides by infinity, as on a GPU
            interpreted(self.kernel)[(self.programs,)](
                *copies, *copies[:2], *counts, *self.numbers, **self.constants, use_tma=False
            )
        for tensor, copy in zip(tensors[4:], copies[4:], strict=True):
            if copy is not tensor:
                tensor.copy_(copy)


def _bind_context() -> None:
    """Bind the device's context to the thread; a thread of autograd lacks it before its first work.

    Triton describes tiles to the driver before it launches, and does not check for a context then.
    """
    if not getattr(_THREAD, "bound", False):
        torch.cuda.Event().record()
        _THREAD.bound = True


class _Tiled:
    """The attributes of a `TensorDescriptor` that Triton's launcher reads, without its slower checks."""

    padding = "zero"
    round_f32_to_tf32 = False

    def __init__(self, tensor: Tensor) -> None:
        length, heads, width = tensor.shape
        self.base = tensor
        self.shape = [heads, length, width]
        self.strides = [tensor.stride(1), tensor.stride(0), 1]


def _descriptor(tensor: Tensor, rows: int) -> TensorDescriptor:
    """Describe [heads, rows, width], whose blocks are rows of one head."""
    length, heads, width = tensor.shape
    return TensorDescriptor(tensor, [heads, length, width], [tensor.stride(1), tensor.stride(0), 1], [1, rows, width])


def _hopper_descriptor(tensor: Tensor, rows: int) -> HopperDescriptor:
    """Describe the same for a kernel of `hstu_hopper`."""
    tiled, width = _Tiled(tensor), tensor.shape[2]
    layout = gl.NVMMASharedLayout(min(128, 2 * width), 16, 3)
    return HopperDescriptor(tensor, tiled.shape, tiled.strides, [1, rows, width], layout)
