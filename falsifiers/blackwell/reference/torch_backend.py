"""The formulas in torch: in float64 the expected values, in float32 on CUDA the cuBLAS backend."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import ProjectionGradients


class TorchBackend:
    """Every operation by its formula, on any device and dtype. See `Backend`."""

    name = "torch"

    def project(self, projection: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        del projection
        product = self.matmul(x, weight, transpose_b=True)
        return product if bias is None else product + bias

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        del projection
        return ProjectionGradients(
            self.matmul(gradient, weight),
            self.matmul(gradient, x, transpose_a=True),
            gradient.sum(dim=0) if bias else None,
        )

    def matmul(self, a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        return torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return x * _inverse_rms(x, eps) * weight

    def rms_norm_backward(self, x: Tensor, weight: Tensor, gradient: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """With n = x / rms: the gradient of n is g = gradient * weight, that of x is (g - n * mean(g * n)) / rms."""
        inverse = _inverse_rms(x, eps)
        normed = x * inverse
        scaled = gradient * weight
        along = (scaled * normed).mean(dim=-1, keepdim=True)
        return (scaled - normed * along) * inverse, (gradient * normed).flatten(0, -2).sum(dim=0)

    def rope(self, x: Tensor, theta: float) -> Tensor:
        return _rotated(x, theta, +1.0)

    def rope_backward(self, gradient: Tensor, theta: float) -> Tensor:
        return _rotated(gradient, theta, -1.0)

    def causal_softmax(self, scores: Tensor, scale: float) -> Tensor:
        rows, keys = scores.shape[-2:]
        query = torch.arange(rows, device=scores.device).remainder(keys)
        unseen = torch.arange(keys, device=scores.device) > query.unsqueeze(-1)
        return (scale * scores).masked_fill(unseen, float("-inf")).softmax(dim=-1)

    def causal_softmax_backward(self, probabilities: Tensor, gradient: Tensor, scale: float) -> Tensor:
        weighted = probabilities * gradient
        return scale * (weighted - probabilities * weighted.sum(dim=-1, keepdim=True))

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return gate * gate.sigmoid() * up

    def silu_gate_backward(self, gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The derivative of z * s(z) is s(z) * (1 + z * (1 - s(z)))."""
        sigmoid = gate.sigmoid()
        slope = sigmoid * (1.0 + gate * (1.0 - sigmoid))
        return gradient * up * slope, gradient * gate * sigmoid

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


class CublasBackend(TorchBackend):
    """Matrix products by cublasGemmEx through torch, in float32 or with inputs rounded to TF32.

    torch has one switch for the whole process. Each product, or both of a projection's backward, set and restore it, so
    that two such backends can be compared in one step.
    """

    name = "cublas"

    def __init__(self, precision: Literal["ieee", "tf32"] = "ieee") -> None:
        """TF32 has 10 bits of mantissa: its unit roundoff is 4.9e-4, whatever the accumulator holds."""
        self.precision = precision

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        """See `Backend`; raises RuntimeError if the tensors are not on a CUDA device."""
        del projection
        with self._precision_on(gradient.device):
            products = torch.mm(gradient, weight), torch.mm(gradient.mT, x)
        return ProjectionGradients(*products, gradient.sum(dim=0) if bias else None)

    def matmul(self, a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        """See `Backend`; raises RuntimeError if the tensors are not on a CUDA device."""
        with self._precision_on(a.device):
            return super().matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)

    def _precision_on(self, device: torch.device) -> AbstractContextManager[None]:
        if device.type != "cuda":
            raise RuntimeError(f"cuBLAS needs tensors on a CUDA device, not on {device}")
        return _tf32(self.precision == "tf32")


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _inverse_rms(x: Tensor, eps: float) -> Tensor:
    return (x.square().mean(dim=-1, keepdim=True) + eps).rsqrt()


def _rotated(x: Tensor, theta: float, direction: float) -> Tensor:
    """The angles are computed in float64: at position 32,767 a float32 angle is off by 0.002."""
    sequence, head_dim = x.shape[-2:]
    half = head_dim // 2
    rates = theta ** -(torch.arange(half, dtype=torch.float64, device=x.device) * 2 / head_dim)
    angles = torch.arange(sequence, dtype=torch.float64, device=x.device).unsqueeze(-1) * rates
    cosine, sine = angles.cos().to(x.dtype), direction * angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
