"""nanochat's transformer: RMSNorm without weights, rotary positions, normalised queries and keys, squared ReLU.

Token embedding and head have separate weights, no layer has a bias, and the logits are capped at 15. The source is
nanochat/gpt.py, on which CHANGELOG_GB10.md rests.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

HeadLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From hidden states [..., width], head [vocabulary, width] and targets [...] to the mean loss."""

Norm = Callable[[Tensor], Tensor]
"""Divides each vector of the last dimension by its root mean square."""

SOFTCAP = 15.0
EPSILON = 1e-6
"""Added to the mean square. It is explicit, because torch and Liger have different defaults."""
IGNORED = -1
_ROTARY_BASE = 10_000.0


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. The defaults are d20, the model of the changelog.

    Attributes:
        layers: transformer blocks.
        width: of the hidden states; a multiple of `heads`.
        heads: of queries, keys and values alike.
        vocabulary: tokens.
        sequence: tokens of a row.
    """

    layers: int = 20
    width: int = 1280
    heads: int = 10
    vocabulary: int = 65_536
    sequence: int = 2_048


def plain_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of whole logits in float32."""
    logits = (hidden @ weight.T).float()
    logits = SOFTCAP * torch.tanh(logits / SOFTCAP)
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)


def plain_norm(values: Tensor) -> Tensor:
    """Return the values normalised by torch."""
    return functional.rms_norm(values, (values.shape[-1],), eps=EPSILON)


class Gpt(nn.Module):
    """The model with its loss. Targets of -1 are ignored."""

    def __init__(self, shape: Shape, loss: HeadLoss = plain_loss, norm: Norm = plain_norm) -> None:
        """Draw weights from torch's generator.

        Raises:
            ValueError: the width cannot be shared by the heads, or a head's width is odd.
        """
        super().__init__()
        if shape.width % (2 * shape.heads):
            raise ValueError(f"{shape.heads} heads cannot share a width of {shape.width} in pairs of numbers")
        self.shape = shape
        self.loss = loss
        self.norm = norm
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(_Block(shape, norm) for _ in range(shape.layers))
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self._initialise()

    def _initialise(self) -> None:
        """Draw embedding and matrices as nanochat does; head and output projections begin with zeros."""
        nn.init.normal_(self.embedding.weight)
        nn.init.zeros_(self.head.weight)
        for block in self.blocks:
            for matrix in (block.query, block.key, block.value, block.up):
                rows, columns = matrix.weight.shape
                nn.init.normal_(matrix.weight, std=min(1.0, math.sqrt(rows / columns)) / math.sqrt(columns))
            nn.init.zeros_(block.output.weight)
            nn.init.zeros_(block.down.weight)

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the normalised hidden states [rows, sequence, width] of tokens [rows, sequence]."""
        stream = self.norm(self.embedding(tokens))
        rotation = _rotation(tokens.shape[1], self.shape.width // self.shape.heads, stream)
        for block in self.blocks:
            stream = block(stream, rotation)
        return self.norm(stream)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of targets [rows, sequence], in nats a token."""
        return self.loss(self.hidden(tokens), self.head.weight, targets)


class _Block(nn.Module):
    """Attention and a perceptron, each added to the stream."""

    def __init__(self, shape: Shape, norm: Norm) -> None:
        super().__init__()
        self.norm = norm
        width = shape.width
        self.heads = shape.heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, stream: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Return the residual stream [rows, sequence, width] after the block."""
        normed = self.norm(stream)
        query, key, value = (
            projection(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        query, key = self.norm(_rotated(query, *rotation)), self.norm(_rotated(key, *rotation))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.output(mixed.transpose(1, 2).flatten(2))
        return stream + self.down(functional.relu(self.up(self.norm(stream))).square())


def _rotation(sequence: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [sequence, width / 2] of the angles of each position."""
    rates = _ROTARY_BASE ** -(torch.arange(0, width, 2, device=like.device, dtype=torch.float32) / width)
    angles = torch.outer(torch.arange(sequence, device=like.device, dtype=torch.float32), rates)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _rotated(values: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn the pairs that the halves of the last dimension make."""
    first, second = values.chunk(2, dim=-1)
    return torch.cat((first * cosine + second * sine, second * cosine - first * sine), dim=-1)
