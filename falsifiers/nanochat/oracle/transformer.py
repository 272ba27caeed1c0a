"""nanochat's transformer in float64, as a function of its matrices.

Vectors are divided by their root mean square. Queries and keys are rotated as complex numbers made of their halves.
Attention is causal. The MLP squares its positive activations. Logits are capped at 15.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_CAP = 15.0
_ADDED = 1e-6
_BASE = 10_000.0


def mean_loss(matrices: Sequence[Tensor], heads: int, tokens: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss in nats over the targets that are not negative.

    Args:
        matrices: float64: the embedding; query, key, value, output, up and down of each block; the head.
        heads: the number of attention heads.
        tokens, targets: ids [rows, sequence].
    """
    embedding, *inner, head = matrices
    losses = []
    for row, target_row in zip(tokens, targets, strict=True):
        stream = _normed(embedding[row])
        for start in range(0, len(inner), 6):
            query, key, value, output, up, down = inner[start : start + 6]
            normed = _normed(stream)
            mixed = [
                _attention(*(normed @ tensor.chunk(heads)[number].T for tensor in (query, key, value)))
                for number in range(heads)
            ]
            stream = stream + torch.cat(mixed, 1) @ output.T
            stream = stream + (_normed(stream) @ up.T).clamp_min(0.0).pow(2) @ down.T
        logits = _CAP * torch.tanh(_normed(stream) @ head.T / _CAP)
        counted = target_row >= 0
        picked = logits[counted, target_row[counted]]
        losses.append(torch.logsumexp(logits[counted], 1) - picked)
    return torch.cat(losses).mean()


def _normed(vectors: Tensor) -> Tensor:
    return vectors / (vectors.pow(2).sum(1, keepdim=True) / vectors.shape[1] + _ADDED).sqrt()


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return the output of one head for one row: [sequence, head width]."""
    query, key = _normed(_turned(query)), _normed(_turned(key))
    scores = query @ key.T / math.sqrt(query.shape[1])
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, -math.inf), 1) @ value


def _turned(vectors: Tensor) -> Tensor:
    """Rotate the pairs of halves at position p by minus p radians, more slowly for later pairs."""
    sequence, width = vectors.shape
    pairs = torch.complex(*vectors.chunk(2, 1))
    rates = torch.tensor([_BASE ** (-2 * number / width) for number in range(width // 2)], dtype=torch.float64)
    angles = torch.arange(sequence, dtype=torch.float64)[:, None] * rates
    turned = pairs * torch.polar(torch.ones_like(angles), -angles)
    return torch.cat((turned.real, turned.imag), 1)
