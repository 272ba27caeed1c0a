"""The operations of a backend as formulas in torch, in the dtype of their inputs."""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor


def product(a: Tensor, b: Tensor, *, transpose_a: bool, transpose_b: bool) -> Tensor:
    """The product of the last two dimensions, as they are transposed."""
    return torch.einsum(f"n{'ki' if transpose_a else 'ik'},n{'jk' if transpose_b else 'kj'}->nij", a, b)


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight`."""
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def rms_norm_gradients(x: Tensor, weight: Tensor, grad_output: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    """Its gradients of x and weight."""
    size = (x.square().mean(-1, keepdim=True) + eps).sqrt()
    along = (grad_output * weight * x).mean(-1, keepdim=True)
    return grad_output * weight / size - x * along / size**3, (grad_output * x / size).sum(0)


def rope(x: Tensor, *, theta: float) -> Tensor:
    """Pairs (i, i + d / 2) of x [..., positions, d], turned by the angle `position * theta^(-2i / d)`."""
    return _turned(x, theta, 1.0)


def rope_gradient(grad_output: Tensor, *, theta: float) -> Tensor:
    """The same, turned back."""
    return _turned(grad_output, theta, -1.0)


def softmax(scores: Tensor, *, scale: float) -> Tensor:
    """The softmax of `scale * scores` [..., rows, keys]; row r sees the keys up to r % keys."""
    rows, keys = scores.shape[-2:]
    hidden = torch.arange(keys) > (torch.arange(rows) % keys)[:, None]
    return (scale * scores).masked_fill(hidden, -math.inf).softmax(-1)


def softmax_gradient(probabilities: Tensor, grad_output: Tensor, *, scale: float) -> Tensor:
    """The gradient of the scores: `scale * p * (g - sum(p * g))`."""
    return scale * probabilities * (grad_output - (probabilities * grad_output).sum(-1, keepdim=True))


def silu_gate(gate: Tensor, up: Tensor) -> Tensor:
    """`silu(gate) * up`."""
    return F.silu(gate) * up


def silu_gate_gradients(gate: Tensor, up: Tensor, grad_output: Tensor) -> tuple[Tensor, Tensor]:
    """Its gradients of gate and up."""
    share = gate.sigmoid()
    return grad_output * up * share * (1 + gate * (1 - share)), grad_output * F.silu(gate)


def _turned(x: Tensor, theta: float, sign: float) -> Tensor:
    positions, width = x.shape[-2:]
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    angles = sign * torch.outer(torch.arange(positions, dtype=torch.float64), theta**-exponents)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
