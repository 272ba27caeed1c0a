"""Inputs for a whole block, and the errors of what it computes, held against the oracle."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from falsifiers.blackwell.measuring.gradient_errors import largest_relative_error
from falsifiers.blackwell.oracle.qwen2 import Shape, TrueBlock
from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.block import Block
from falsifiers.blackwell.reference.shapes import BlockShape

_WEIGHT: Final = 0.02
"""Standard deviation of Qwen2's initial weights."""
_OFFSET: Final = 120.0
"""Added to attention scores. The exponential of 89 is infinite in float32, and that of -104 is 0."""
_GATE: Final = 16.0
"""Standard deviation of the largest gates. A few reach 60; the exponential of 89 is infinite in float32."""
_SMALL: Final = 0.003
"""Standard deviation of activations whose mean square, 1e-5, is not far above Qwen2's epsilon of 1e-6."""


@dataclass(frozen=True)
class BlockCase:
    """The inputs of a block: weights by name; x and the incoming gradient [batch, sequence, hidden]."""

    weights: dict[str, Tensor]
    x: Tensor
    grad_output: Tensor


def block_case(
    shape: Shape,
    size: tuple[int, int],
    seed: int,
    device: str,
    dtype: torch.dtype = torch.float32,
    *,
    steep: bool = False,
) -> BlockCase:
    """Draw a case for `size` = (sequences, tokens), on the CPU, so that equal seeds give equal numbers.

    Args:
        steep: attention scores are so large that a softmax without their maximum overflows or vanishes, and
            activations so small that the epsilon of both norms matters. In each sequence the score of one key is as
            much larger again, so that the maximum must be that of all keys. Gates are of all sizes. Only for float32:
            bfloat16 has no digits left.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64)

    weights = {
        name: _WEIGHT * drawn(*sizes) + (1.0 if name.endswith("norm") else 0.0)
        for name, sizes in TrueBlock(shape).parameters.items()
    }
    x, grad_output = drawn(*size, shape.hidden), drawn(*size, shape.hidden)
    if steep:
        offset_scores(weights, shape)
        x *= _SMALL
        _raise_one_key(weights, shape, x, generator)
        raise_gates(weights["gate.weight"], shape)
        for name in ("v.weight", "v.bias"):
            weights[name] *= 0.1
    return BlockCase(
        {name: weight.to(device, dtype) for name, weight in weights.items()},
        x.to(device, dtype),
        grad_output.to(device, dtype),
    )


@torch.no_grad()
def offset_scores(weights: Mapping[str, Tensor], shape: Shape) -> None:
    """Change the biases of q and k so that the scores of the first key head are about 120 larger, of others smaller.

    The offset is equal for all keys of a query, so a right softmax does not change much: the biases change the pair of
    features that RoPE turns least, by less than 1e-5 a token.
    """
    size, pair = shape.head_dim, shape.head_dim // 2 - 1
    each = (_OFFSET * size**0.5) ** 0.5
    weights["q.bias"][pair::size] += each
    weights["k.bias"][pair::size] -= each
    weights["k.bias"][pair] += 2 * each


@torch.no_grad()
def raise_gates(weight: Tensor, shape: Shape) -> None:
    """Scale the rows of a gate's weight, so that gates have all sizes: an activation is wrong at some size only."""
    most = max(1.0, _GATE / (_WEIGHT * shape.hidden**0.5))  # what a norm leaves has a length of the root of `hidden`
    weight *= torch.logspace(0.0, math.log10(most), len(weight), dtype=torch.float64).unsqueeze(-1).to(weight)


def _raise_one_key(weights: Mapping[str, Tensor], shape: Shape, x: Tensor, generator: torch.Generator) -> None:
    """Give one token of each sequence the only input that one feature of the first key reads.

    It is the last token of the first sequence, and one in the second half of any other.
    """
    sequences, tokens, _ = x.shape
    places = torch.randint(tokens // 2, tokens, (sequences,), generator=generator)
    places[0] = tokens - 1
    x[..., 0] = 0.0
    x[torch.arange(sequences), places, 0] = 100.0 * _SMALL
    _read_one_feature(weights["k.weight"], shape)


@torch.no_grad()
def raise_token(embedding: Tensor, k_weight: Tensor, shape: Shape) -> None:
    """Change the weights so that token 0 is a key whose scores in the first block are about 120 above all others.

    It is the only token with the input that one feature of the first key head reads. `offset_scores` comes before.
    """
    embedding[:, 0] = 0.0
    embedding[0] = 0.0
    embedding[0, 0] = 1.0
    _read_one_feature(k_weight, shape)


def _read_one_feature(k_weight: Tensor, shape: Shape) -> None:
    """Let one feature of the first key head read the first input, where a norm leaves nearly the root of `hidden`."""
    k_weight[shape.head_dim // 2 - 1, 0] = (_OFFSET * shape.head_dim**0.5) ** 0.5 / (0.99 * shape.hidden**0.5)


def block_error(
    backend: Backend, shape: BlockShape, case: BlockCase, true: Mapping[str, Tensor], *, refilled: bool = False
) -> float:
    """The largest relative error of the output and of all gradients of a block on this backend.

    Args:
        true: what `TrueBlock.gradients` returns for the case.
        refilled: whether a forward of another x goes before, in the memory of the case's own.
    """
    block = Block(shape, backend)
    with torch.no_grad():
        if refilled:
            block.forward(case.x.neg_(), case.weights)
            case.x.neg_()
        output, saved = block.forward(case.x, case.weights)
        grad_x, grad_weights = block.backward(saved, case.weights, case.grad_output)
    return largest_relative_error({"output": output, "x": grad_x, **grad_weights}, true)
