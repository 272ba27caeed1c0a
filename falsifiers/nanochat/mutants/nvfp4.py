"""Emulations of NVFP4 with one known defect each."""

from __future__ import annotations

import torch
from torch import Tensor

from falsifiers.nanochat.reference.nvfp4 import EmulatedNvfp4

__all__ = [
    "BlockOf32", "InputGradientExact", "NoBlockScale", "NoTensorScale", "PowerOfTwoScale", "Truncated", "UniformGrid",
    "WeightGradientQuantised", "WithoutHalf",
]  # fmt: skip


class BlockOf32(EmulatedNvfp4):
    """Blocks of 32 numbers, as in MXFP4."""

    block = 32


class PowerOfTwoScale(EmulatedNvfp4):
    """Scales of blocks are powers of two, as in MXFP4."""

    def scale(self, wanted: Tensor, tensor_scale: Tensor) -> Tensor:
        """Round up."""
        return torch.where(wanted > 0, torch.exp2(torch.log2(wanted.clamp(min=1e-300)).ceil()), 0.0)


class NoTensorScale(EmulatedNvfp4):
    """Scales of blocks are rounded to E4M3 as they are, so small tensors vanish."""

    def scale(self, wanted: Tensor, tensor_scale: Tensor) -> Tensor:
        """Leave the tensor's scale out."""
        return super().scale(wanted, torch.ones_like(tensor_scale))


class NoBlockScale(EmulatedNvfp4):
    """One scale for all."""

    def scale(self, wanted: Tensor, tensor_scale: Tensor) -> Tensor:
        """Take the largest."""
        return wanted.amax().expand_as(wanted)


class Truncated(EmulatedNvfp4):
    """Numbers are cut instead of rounded."""

    def rounded(self, values: Tensor) -> Tensor:
        """Round towards zero."""
        size = values.abs().clamp(max=6.0)
        step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
        return torch.copysign((size / step).floor() * step, values)


class UniformGrid(EmulatedNvfp4):
    """The grid of integers of four bits."""

    def rounded(self, values: Tensor) -> Tensor:
        """Round to whole numbers."""
        return values.clamp(-6, 6).round()


class WithoutHalf(EmulatedNvfp4):
    """The subnormal 0.5 becomes 0."""

    def rounded(self, values: Tensor) -> Tensor:
        """Flush it."""
        made = super().rounded(values)
        return torch.where(made.abs() == 0.5, 0.0, made)


class WeightGradientQuantised(EmulatedNvfp4):
    """The gradient of the weight has quantised factors, too."""

    def weight_gradient(self, above: Tensor, inputs: Tensor) -> Tensor:
        """Quantise both along the outputs and the width."""
        return self.quantised(above).T @ self.quantised(inputs)


class InputGradientExact(EmulatedNvfp4):
    """The gradient of the inputs has factors as they are."""

    def input_gradient(self, above: Tensor, weight: Tensor) -> Tensor:
        """Quantise nothing."""
        return above @ weight
