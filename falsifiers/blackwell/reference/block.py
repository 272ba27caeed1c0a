"""A Qwen2 decoder block with a written-out backward; the backend runs every operation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.shapes import BlockShape


@dataclass(frozen=True)
class Saved:
    """What the forward pass keeps for the backward pass: [tokens, features], except for the tensors of heads.

    Attributes:
        probabilities: [batch, kv_heads, group * sequence, sequence]: the score workspace, heads * sequence^2 * 4 bytes
            per sequence in float32. With 32,768 tokens and 14 heads this is 60,129,542,144 bytes: the out-of-memory
            that SPEC-BLACKWELL-FIX-001 attributes to kernels (aprender #1808).
    """

    x: Tensor
    normed: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    probabilities: Tensor
    attended: Tensor
    middle: Tensor
    post_normed: Tensor
    gate: Tensor
    up: Tensor
    gated: Tensor


class Block:
    """`x + o(attention(norm(x)))`, then `+ down(silu(gate(norm)) * up(norm))`, and the gradients of it."""

    def __init__(self, shape: BlockShape, backend: Backend) -> None:
        """Allocate nothing; `forward` and `backward` take weights by the names of `shape.parameters`."""
        self.shape = shape
        self.backend = backend

    def forward(self, x: Tensor, weights: Mapping[str, Tensor]) -> tuple[Tensor, Saved]:
        """The output, shaped as x [batch, sequence, hidden], and what `backward` needs."""
        run, shape = self.backend, self.shape
        batch, sequence, _ = x.shape
        flat = x.reshape(batch * sequence, shape.hidden)
        normed = run.rms_norm(flat, weights["input_norm"], shape.eps)
        q = run.rope(self._split(self._project("q", normed, weights), batch), shape.theta)
        k = run.rope(self._split(self._project("k", normed, weights), batch), shape.theta)
        v = self._split(self._project("v", normed, weights), batch)
        scores = run.matmul(self._grouped(q), k, transpose_b=True)
        probabilities = run.causal_softmax(scores, self._scale)
        attended = self._merge(run.matmul(probabilities, v), sequence)
        middle = run.add(flat, self._project("o", attended, weights))
        post_normed = run.rms_norm(middle, weights["post_norm"], shape.eps)
        gate, up = self._project("gate", post_normed, weights), self._project("up", post_normed, weights)
        gated = run.silu_gate(gate, up)
        output = run.add(middle, self._project("down", gated, weights))
        saved = Saved(flat, normed, q, k, v, probabilities, attended, middle, post_normed, gate, up, gated)
        return output.view(x.shape), saved

    def backward(
        self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The gradient of x, shaped as `gradient` [batch, sequence, hidden], and of every weight by its name."""
        run, shape = self.backend, self.shape
        batch, sequence, _ = gradient.shape
        gradients: dict[str, Tensor] = {}
        grad_output = gradient.reshape(saved.x.shape)

        grad_gated = self._project_backward("down", saved.gated, weights, grad_output, gradients)
        grad_gate, grad_up = run.silu_gate_backward(saved.gate, saved.up, grad_gated)
        grad_post_normed = run.add(
            self._project_backward("gate", saved.post_normed, weights, grad_gate, gradients),
            self._project_backward("up", saved.post_normed, weights, grad_up, gradients),
        )
        through_norm, gradients["post_norm"] = run.rms_norm_backward(
            saved.middle, weights["post_norm"], grad_post_normed, shape.eps
        )
        grad_middle = run.add(grad_output, through_norm)

        grad_attended = self._project_backward("o", saved.attended, weights, grad_middle, gradients)
        grad_heads = self._grouped(self._split(grad_attended, batch))
        dv = run.matmul(saved.probabilities, grad_heads, transpose_a=True)
        grad_probabilities = run.matmul(grad_heads, saved.v, transpose_b=True)
        grad_scores = run.causal_softmax_backward(saved.probabilities, grad_probabilities, self._scale)
        dq = run.rope_backward(run.matmul(grad_scores, saved.k).view(saved.q.shape), shape.theta)
        dk = run.rope_backward(run.matmul(grad_scores, self._grouped(saved.q), transpose_a=True), shape.theta)
        grad_normed = run.add(
            run.add(
                self._project_backward("q", saved.normed, weights, self._merge(dq, sequence), gradients),
                self._project_backward("k", saved.normed, weights, self._merge(dk, sequence), gradients),
            ),
            self._project_backward("v", saved.normed, weights, self._merge(dv, sequence), gradients),
        )
        through_norm, gradients["input_norm"] = run.rms_norm_backward(
            saved.x, weights["input_norm"], grad_normed, shape.eps
        )
        return run.add(grad_middle, through_norm).view(gradient.shape), gradients

    @property
    def _scale(self) -> float:
        return float(self.shape.head_dim**-0.5)

    def _project(self, name: str, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return self.backend.project(name, x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def _project_backward(
        self, name: str, x: Tensor, weights: Mapping[str, Tensor], gradient: Tensor, gradients: dict[str, Tensor]
    ) -> Tensor:
        """Put the gradients of weight and bias into `gradients`; returns that of x."""
        projected = self.backend.project_backward(
            name, x, weights[f"{name}.weight"], gradient, bias=f"{name}.bias" in weights
        )
        gradients[f"{name}.weight"] = projected.weight
        if projected.bias is not None:
            gradients[f"{name}.bias"] = projected.bias
        return projected.x

    def _split(self, flat: Tensor, batch: int) -> Tensor:
        """[tokens, heads * head_dim] as [batch, heads, sequence, head_dim]."""
        return (
            flat.view(batch, -1, flat.shape[-1] // self.shape.head_dim, self.shape.head_dim)
            .transpose(1, 2)
            .contiguous()
        )

    def _merge(self, heads: Tensor, sequence: int) -> Tensor:
        """[batch, ..., sequence, head_dim], grouped or not, as [tokens, heads * head_dim]."""
        split = heads.reshape(heads.shape[0], -1, sequence, self.shape.head_dim)
        return split.transpose(1, 2).reshape(heads.shape[0] * sequence, -1)

    def _grouped(self, heads: Tensor) -> Tensor:
        """[batch, heads, sequence, head_dim] as [batch, kv_heads, group * sequence, head_dim]; repeats no key."""
        batch, _, sequence, head_dim = heads.shape
        return heads.reshape(batch, self.shape.kv_heads, self.shape.group * sequence, head_dim)


def new_weights(shape: BlockShape, seed: int, **options: Any) -> dict[str, Tensor]:
    """Weights with standard deviation 0.02, as Qwen2's initial ones, and around 1 in the norms. Biases are not 0.

    Args:
        options: dtype and device, as torch.empty takes them.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, size in shape.parameters().items():
        drawn = 0.02 * torch.randn(size, generator=generator, dtype=torch.float64)
        weights[name] = (drawn + 1.0 if name.endswith("norm") else drawn).to(**options)
    return weights
