"""Right functions of tensors, their references, and how their arguments are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (as everybody calls it)
from torch import Tensor

from harness.authoring.tensor_function import Draw

IGNORED = -100


@dataclass(frozen=True)
class Known:
    """A function with its reference and its example."""

    function: Callable[..., Any]
    reference: Callable[..., Any]
    example: Callable[[Draw], Any]


def softmax(x: Tensor) -> Tensor:
    """A softmax over the last dimension that sums in float32."""
    wide = x if x.dtype == torch.float64 else x.float()
    powers = (wide - wide.detach().amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def softmax_reference(x: Tensor) -> Tensor:
    """torch's."""
    return torch.softmax(x, -1)


def one_matrix(draw: Draw) -> Any:
    """[rows, width]."""
    return draw.tensor(draw.size("rows"), draw.size("width"))


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """The activation of a gated feed-forward layer."""
    return F.silu(gate) * up


def silu_mul_reference(gate: Tensor, up: Tensor) -> Tensor:
    """The definition."""
    return gate * torch.sigmoid(gate) * up


def two_matrices(draw: Draw) -> Any:
    """Twice [rows, width]."""
    rows, width = draw.size("rows"), draw.size("width")
    return draw.tensor(rows, width), draw.tensor(rows, width)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """A layer norm that sums in float32."""
    wide = x.float() if x.dtype != torch.float64 else x
    centred = wide - wide.mean(-1, keepdim=True)
    normal = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (normal * weight.to(wide.dtype) + bias.to(wide.dtype)).to(x.dtype)


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """torch's."""
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def matrix_and_vectors(draw: Draw) -> Any:
    """[rows, width], twice [width], and a small number."""
    rows, width = draw.size("rows"), draw.size("width")
    return draw.tensor(rows, width), draw.tensor(width), draw.tensor(width), draw.choice("eps", 1e-5, 1e-2)


def cross_entropy(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
    """torch's cross entropy."""
    return F.cross_entropy(logits, labels, reduction=reduction)


def cross_entropy_reference(logits: Tensor, labels: Tensor, reduction: str) -> Tensor:
    """The definition; ignored rows count nothing."""
    picked = logits.gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1)
    counts = labels != IGNORED
    losses = torch.where(counts, torch.logsumexp(logits, -1) - picked, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() / (counts.sum() if reduction == "mean" else 1)


def logits_and_labels(draw: Draw) -> Any:
    """[rows, vocabulary], [rows], and how the losses of the rows are reduced."""
    rows, vocabulary = draw.size("rows"), draw.size("vocabulary", least=2)
    labels = draw.index(rows, below=vocabulary, also=(IGNORED,))
    return draw.tensor(rows, vocabulary), labels, draw.choice("reduction", "mean", "sum", "none")


HEALTHY: Mapping[str, Known] = {
    "softmax": Known(softmax, softmax_reference, one_matrix),
    "silu_mul": Known(silu_mul, silu_mul_reference, two_matrices),
    "layer_norm": Known(layer_norm, layer_norm_reference, matrix_and_vectors),
    "cross_entropy": Known(cross_entropy, cross_entropy_reference, logits_and_labels),
}
