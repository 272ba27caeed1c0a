"""A block whose backward goes on in WGSL when CUDA has no memory for it, or no machine code.

    wgpu = WgpuBackend("gpu")
    blocks = [FallbackBlock(shape, CublasBackend(), wgpu, layer) for layer in range(24)]
    model = LanguageModel(shape, blocks, vocabulary, seed, device)

What was computed before the fault is given up: the backward is made again as a whole from what the forward pass saved,
so that nothing is counted twice. The next backward is CUDA's again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend, JitFailure
from falsifiers.blackwell.reference.block import Block, Saved
from falsifiers.blackwell.reference.shapes import SHAPES, BlockShape
from falsifiers.blackwell.reference.wgpu_backend import WgpuBackend
from harness import Setting

__all__ = ["FALLS_THROUGH", "Fallback", "FallbackBlock"]

FALLS_THROUGH: Final = (torch.OutOfMemoryError, JitFailure)
"""What wgpu can help against. Any other error says that something is wrong, and is nobody's to hide."""

_log = logging.getLogger(__name__)


class FallbackBlock(Block):
    """A block that survives an out-of-memory of its backward."""

    def __init__(self, shape: BlockShape, primary: Backend, fallback: WgpuBackend, layer: int) -> None:
        """`layer` names the block in its warning, which is given once in the block's life."""
        super().__init__(shape, primary)
        self.layer = layer
        self._fallback = Block(shape, fallback)
        self._wgpu = fallback
        self._warned = False

    def backward(
        self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `Block`; the gradients lie where `gradient` does, whoever computed them."""
        try:
            return super().backward(saved, weights, gradient)
        except FALLS_THROUGH as error:
            reason = f"{type(error).__name__}: {error}"
        # Here and not above: the traceback held everything that was computed before the fault, and memory is short.
        self._warn(reason)
        return self._backward_on_wgpu(saved, weights, gradient)

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("layer %d: CUDA backward fell through to wgpu (%s)", self.layer, reason)

    def _backward_on_wgpu(
        self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One journey there and one back; what lies between stays on the adapter."""
        upload = self._wgpu.upload
        there = Saved(**{field.name: upload(getattr(saved, field.name)) for field in fields(Saved)})
        weights_there = {name: upload(weight) for name, weight in weights.items()}
        of_x, of_weights = self._fallback.backward(there, weights_there, upload(gradient))
        back = gradient.device
        return of_x.fetch(back), {name: found.fetch(back) for name, found in of_weights.items()}


class Fallback:
    """The subject of F-BLACKWELL-WGPU-FALLBACK-001: makes the blocks of a model."""

    make_block: type[FallbackBlock] = FallbackBlock

    def __init__(self, setting: Setting) -> None:
        """Open the adapter that the parameters name; NoAdapter where it is not there."""
        self._shape = SHAPES[setting.parameters["model"]]
        self._wgpu = WgpuBackend(setting.parameters["adapter"])

    def block(self, layer: int, primary: Backend) -> Block:
        """Layer `layer`, counted from 0, of a model: its work is the primary backend's as long as that can do it."""
        return self.make_block(self._shape, primary, self._wgpu, layer)
