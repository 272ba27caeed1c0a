"""Emulated NVFP4 on tensors: what Blackwell's tensor cores multiply, computed in float32."""

from typing import Any

import torch
from torch import Tensor

from harness import Setting

_BLOCK, _LARGEST, _LARGEST_SCALE = 16, 6.0, 448.0


class EmulatedNvfp4:
    """The recipe: quantised factors of the product and of the inputs' gradient, and no rotation. See `Quantiser`."""

    def __init__(self, setting: Setting) -> None: ...

    def quantised(self, values: Tensor) -> Tensor:
        blocks = values.double().unflatten(-1, (-1, _BLOCK))
        tensor_scale = (values.double().abs().amax() / (_LARGEST * _LARGEST_SCALE)).float().double()
        scale = self.scale(blocks.abs().amax(-1, keepdim=True) / _LARGEST, tensor_scale)
        kept = torch.where(scale > 0, self.rounded(blocks / torch.where(scale > 0, scale, 1.0)) * scale, 0.0)
        return kept.flatten(-2).float()

    def scale(self, wanted: Tensor, tensor_scale: Tensor) -> Tensor:
        """Return the scale of each block: E4M3 times that of the tensor."""
        if tensor_scale == 0:
            return torch.zeros_like(wanted)
        return (wanted / tensor_scale).float().to(torch.float8_e4m3fn).double() * tensor_scale

    def rounded(self, values: Tensor) -> Tensor:
        """Round to the nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, and halves to the even one of two."""
        size = values.abs().clamp(max=_LARGEST)
        step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
        return torch.copysign((size / step).round() * step, values)

    def linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        output: Tensor = _Linear.apply(inputs, weight, self)
        return output


class _Linear(torch.autograd.Function):
    """A product whose gradients the recipe computes."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, recipe: EmulatedNvfp4) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.recipe = recipe
        return recipe.quantised(inputs) @ recipe.quantised(weight).T

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor, None]:
        inputs, weight = ctx.saved_tensors
        quantised = ctx.recipe.quantised
        return quantised(grad_outputs[0]) @ quantised(weight.T).T, grad_outputs[0].T @ inputs, None
