"""What the corpus's functions should compute, in torch's own operations, and how their arguments are drawn."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor

from harness.authoring.tensor_function.drawing import Draw

__all__ = [
    "affine", "example_of_affine", "example_of_layer_norm", "example_of_matmul", "example_of_pair", "example_of_rows",
    "layer_norm", "matmul", "mean_square", "mse", "relu", "rms_norm", "softmax", "total",
]  # fmt: skip


def example_of_rows(draw: Draw) -> tuple[Tensor]:
    """One matrix."""
    return (draw.tensor(draw.size("rows"), draw.size("width")),)


def softmax(x: Tensor) -> Tensor:
    """Of each row."""
    return torch.softmax(x, dim=-1)


def relu(x: Tensor) -> Tensor:
    """Of each element."""
    return torch.relu(x)


def total(x: Tensor) -> Tensor:
    """The sum of each row."""
    return x.sum(dim=-1)


def rms_norm(x: Tensor) -> Tensor:
    """Each row divided by its root mean square."""
    return F.rms_norm(x, x.shape[-1:], eps=1e-5)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """A product of matrices."""
    return a @ b


def example_of_matmul(draw: Draw) -> tuple[Tensor, Tensor]:
    """Two matrices that fit."""
    rows, inner, columns = draw.size("rows"), draw.size("inner"), draw.size("columns")
    return draw.tensor(rows, inner), draw.tensor(inner, columns)


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer."""
    return F.linear(x, weight, bias)


def example_of_affine(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, a weight [out, in] and a bias [out]."""
    rows, inner, out = draw.size("rows"), draw.size("inner"), draw.size("out")
    return draw.tensor(rows, inner), draw.tensor(out, inner), draw.tensor(out)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Over the last dimension."""
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def example_of_layer_norm(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, weight and bias."""
    rows, width = draw.size("rows"), draw.size("width", least=2)
    return draw.tensor(rows, width), draw.tensor(width), draw.tensor(width)


def mse(x: Tensor, target: Tensor) -> Tensor:
    """The mean square of the differences."""
    return F.mse_loss(x, target)


def mean_square(x: Tensor) -> Tensor:
    """Of all elements."""
    return x.square().mean()


def example_of_pair(draw: Draw) -> tuple[Tensor, Tensor]:
    """Two matrices of one shape."""
    rows, width = draw.size("rows"), draw.size("width")
    return draw.tensor(rows, width), draw.tensor(rows, width)
