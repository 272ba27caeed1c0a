"""The truth about one projection, `y = x @ weight.T + bias`: autograd in float64."""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor


def projection_gradients(x: Tensor, weight: Tensor, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x [tokens, in], weight [out, in] and a bias [out] in float64, for `grad_output` [tokens, out]."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in (x, weight, weight.new_zeros(len(weight)))]
    with torch.enable_grad():
        output = F.linear(*leaves)
    grad_x, grad_weight, grad_bias = torch.autograd.grad(output, leaves, grad_output.double())
    return grad_x, grad_weight, grad_bias
