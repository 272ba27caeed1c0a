"""A block whose backward continues in WGSL if CUDA has no memory or no machine code for it.

    wgpu = WgpuBackend("gpu")
    blocks = [FallbackBlock(shape, CublasBackend(), wgpu, layer) for layer in range(24)]
    model = LanguageModel(shape, blocks, vocabulary, seed, device)

Results from before the fault are dropped. The whole backward runs again from what the forward pass saved, so that
nothing is counted twice. The next backward starts on CUDA again.
"""

import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.block import Block, Saved
from falsifiers.blackwell.reference.cuda_device import DriverError
from falsifiers.blackwell.reference.kernels.nvrtc import CompilationFailed
from falsifiers.blackwell.reference.shapes import SHAPES, BlockShape
from falsifiers.blackwell.reference.wgpu_backend import WgpuBackend
from harness import Setting

_OF_THE_DRIVER: Final = frozenset(
    {
        "CUDA_ERROR_OUT_OF_MEMORY",
        "CUDA_ERROR_INVALID_PTX",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
        "CUDA_ERROR_JIT_COMPILATION_DISABLED",
    }
)
"""Errors of the CUDA driver about memory or missing machine code."""

_OF_TORCH: Final = (
    "CUDA error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
    "CUDA error: no kernel image is available for execution on the device",
)
"""First words of torch's errors, without a class of their own, about memory or missing machine code."""

_log = logging.getLogger(__name__)


def falls_through(error: Exception) -> bool:
    """Whether wgpu can help: memory or machine code was missing. Other errors are defects."""
    if isinstance(error, DriverError):
        return error.name in _OF_THE_DRIVER
    if isinstance(error, (torch.OutOfMemoryError, CompilationFailed)):
        return True
    return isinstance(error, RuntimeError) and str(error).startswith(_OF_TORCH)


class FallbackBlock(Block):
    """A block that survives an out-of-memory in its backward."""

    def __init__(self, shape: BlockShape, primary: Backend, fallback: WgpuBackend, layer: int) -> None:
        """`layer` is the block's name in its warning, which is logged once."""
        super().__init__(shape, primary)
        self.layer = layer
        self._fallback = Block(shape, fallback)
        self._wgpu = fallback
        self._warned = False

    def backward(
        self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The gradients are on the device of `gradient`, whichever backend computed them."""
        try:
            return super().backward(saved, weights, gradient)
        except Exception as error:
            if not falls_through(error):
                raise
            reason = f"{type(error).__name__}: {error}"
        # Outside of `except`: the traceback keeps all tensors from before the fault alive, and memory is short.
        self._warn(reason)
        return self._backward_on_wgpu(saved, weights, gradient)

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("layer %d: CUDA backward fell through to wgpu (%s)", self.layer, reason)

    def _backward_on_wgpu(
        self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Upload the operands, run the backward on the adapter, and fetch the gradients."""
        upload = self._wgpu.upload
        there = Saved(**{field.name: upload(getattr(saved, field.name)) for field in fields(Saved)})
        weights_there = {name: upload(weight) for name, weight in weights.items()}
        grad_x, grad_weights = self._fallback.backward(there, weights_there, upload(gradient))
        back = gradient.device
        return grad_x.fetch(back), {name: grad.fetch(back) for name, grad in grad_weights.items()}


class Fallback:
    """The subject of F-BLACKWELL-WGPU-FALLBACK-001: makes the blocks of a model. See `FallbackBlocks`."""

    def __init__(self, setting: Setting) -> None:
        """Open the adapter that the parameters name; raises NoAdapter if it is missing."""
        self._shape = SHAPES[setting.parameters["model"]]
        self._wgpu = WgpuBackend(setting.parameters["adapter"])

    def block(self, layer: int, primary: Backend) -> Block:
        """Layer `layer`, counted from 0; the primary backend does its work unless it lacks memory or code."""
        return FallbackBlock(self._shape, primary, self._wgpu, layer)

    def fallback(self) -> WgpuBackend:
        return self._wgpu
