"""The operations that a block needs from a backend: arithmetic on tensors, so that backends are interchangeable.

All tensors are contiguous. Activations are [tokens, features], or [batch, heads, sequence, head_dim] inside attention.
A backend may keep copies and buffers. Its results are on the device of its arguments.
"""

from typing import NamedTuple, Protocol

from torch import Tensor


class ProjectionGradients(NamedTuple):
    """Gradients of `y = x @ weight.T + bias`, shaped as x [tokens, in], weight [out, in] and bias [out]."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None


class Backend(Protocol):
    """One implementation of the kernels: `ptx`, `triton`, `cublas` or `wgpu`."""

    @property
    def name(self) -> str:
        """The name that a trial resolves as its backend."""
        ...

    def project(self, projection: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """`x @ weight.T + bias`: [tokens, out]. `projection` is one of PROJECTIONS; it names the kernel."""
        ...

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        """`gradient @ weight`, `gradient.T @ x`, and with a bias the sum of `gradient` [tokens, out] over tokens."""
        ...

    def matmul(self, a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        """The product over the last two dimensions, transposed on request. Leading dimensions must be equal."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """`x / sqrt(mean(x^2) + eps) * weight` over the features."""
        ...

    def rms_norm_backward(self, x: Tensor, weight: Tensor, gradient: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """The gradients of x and of weight."""
        ...

    def rope(self, x: Tensor, theta: float) -> Tensor:
        """Rotate the pairs (i, i + d / 2) of x [batch, heads, sequence, d] by the angle position * theta^(-2i / d)."""
        ...

    def rope_backward(self, gradient: Tensor, theta: float) -> Tensor:
        """The inverse rotation."""
        ...

    def causal_softmax(self, scores: Tensor, scale: float) -> Tensor:
        """Softmax of `scale * scores` over the keys, which are the last dimension, for each query.

        scores is [..., rows, sequence], where rows is a multiple of sequence. Row r is query r % sequence and sees the
        keys up to its own position; the other probabilities are 0.
        """
        ...

    def causal_softmax_backward(self, probabilities: Tensor, gradient: Tensor, scale: float) -> Tensor:
        """The gradient of scores: `scale * p * (g - sum(p * g))` in every row; 0 where p is 0."""
        ...

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        """`gate * sigmoid(gate) * up`."""
        ...

    def silu_gate_backward(self, gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of gate and of up."""
        ...

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """The sum of two tensors of one shape, for residual connections and gradients with several sources."""
        ...
