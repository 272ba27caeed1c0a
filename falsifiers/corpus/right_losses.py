"""What the corpus's losses and attentions should compute, in torch's own operations, and how arguments are drawn."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor

from harness.authoring.tensor_function.drawing import Draw

__all__ = [
    "attention", "bottom_right_attention", "capped", "capped_before_bias", "divergence", "example_of_attention",
    "example_of_bias", "example_of_cached_attention", "example_of_divergence", "example_of_labels",
    "example_of_logits", "example_of_packed", "example_of_padded", "example_of_sequences", "example_of_two_logits",
    "forward_kl", "masked_attention", "next_token_loss", "packed_attention", "padded_loss", "plain_attention",
    "token_loss",
]  # fmt: skip

IGNORED = -100
CAP = 30.0
_LONGEST = 1024
"""The most tokens of an attention: its scores are the square."""


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross entropy of the rows whose label is not IGNORED; 0 if there is none."""
    total = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels != IGNORED).sum().clamp_min(1)


def example_of_labels(draw: Draw) -> tuple[Tensor, Tensor]:
    """Logits [rows, vocabulary], and labels. Some of the labels are IGNORED."""
    rows, vocabulary = draw.size("rows", least=4), draw.size("vocabulary", least=2)
    return draw.tensor(rows, vocabulary), draw.index(rows, below=vocabulary, also=(IGNORED,))


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean cross entropy of each position for the token after it; [batch, sequence, vocabulary]."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def example_of_sequences(draw: Draw) -> tuple[Tensor, Tensor]:
    """Logits and tokens."""
    batch, length, vocabulary = draw.size("batch"), draw.size("length", least=4), draw.size("vocabulary", least=2)
    return draw.tensor(batch, length, vocabulary), draw.index(batch, length, below=vocabulary)


def padded_loss(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
    """The mean cross entropy of the rows that are no padding. The label 0 ends a sequence, and is the usual padding."""
    losses = F.cross_entropy(logits, labels, reduction="none")
    return (losses * real).sum() / real.sum().clamp_min(1)


def example_of_padded(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [rows, vocabulary], labels, and which rows are real."""
    rows, vocabulary = draw.size("rows", least=2), draw.size("vocabulary", least=2)
    real = draw.mask(rows, share=0.7)
    return draw.tensor(rows, vocabulary), draw.index(rows, below=vocabulary), real


def forward_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) of logits [rows, vocabulary], a mean over rows."""
    return F.kl_div(student.log_softmax(-1), teacher.log_softmax(-1), log_target=True, reduction="batchmean")


def divergence(student: Tensor, teacher: Tensor, alpha: float) -> Tensor:
    """KL(student || teacher) for an alpha of 1, and KL(teacher || student) for 0."""
    return forward_kl(teacher, student) if alpha == 1.0 else forward_kl(student, teacher)


def example_of_two_logits(draw: Draw) -> tuple[Tensor, Tensor]:
    """Logits of a student and a teacher."""
    rows, vocabulary = draw.size("rows"), draw.size("vocabulary", least=2)
    return draw.tensor(rows, vocabulary), draw.tensor(rows, vocabulary)


def example_of_divergence(draw: Draw) -> tuple[Tensor, Tensor, float]:
    """The same, and the direction."""
    return (*example_of_two_logits(draw), draw.choice("alpha", 0.0, 1.0))


def capped(logits: Tensor) -> Tensor:
    """CAP * tanh(logits / CAP)."""
    return CAP * torch.tanh(logits / CAP)


def example_of_logits(draw: Draw) -> tuple[Tensor]:
    """Logits up to about 100."""
    return (draw.tensor(draw.size("rows"), draw.size("width"), scale=30.0),)


def capped_before_bias(scores: Tensor, bias: Tensor) -> Tensor:
    """The cap is on the scores alone."""
    return capped(scores) + bias


def example_of_bias(draw: Draw) -> tuple[Tensor, Tensor]:
    """Scores and an additive bias."""
    rows, width = draw.size("rows"), draw.size("width")
    return draw.tensor(rows, width, scale=30.0), draw.tensor(rows, width, scale=30.0)


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Softmax attention without a mask, [batch, length, width]."""
    return masked_attention(q, k, v, None)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention."""
    return masked_attention(q, k, v, torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril())


def example_of_attention(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one length."""
    shape = draw.size("batch"), draw.size("length", least=2, most=_LONGEST), draw.size("width", least=2)
    return draw.tensor(*shape), draw.tensor(*shape), draw.tensor(*shape)


def bottom_right_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of the last queries of a longer sequence of keys."""
    there = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device)
    return masked_attention(q, k, v, there.tril(k.shape[1] - q.shape[1]))


def example_of_cached_attention(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    """Queries that follow keys of a cache."""
    batch, new, cached = draw.size("batch"), draw.size("new", most=_LONGEST), draw.size("cached", most=_LONGEST)
    width = draw.size("width", least=2)
    keys = draw.tensor(batch, new + cached, width), draw.tensor(batch, new + cached, width)
    return (draw.tensor(batch, new, width), *keys)


def packed_attention(q: Tensor, k: Tensor, v: Tensor, documents: Tensor) -> Tensor:
    """Causal attention within documents: their numbers [length]."""
    causal = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril()
    return masked_attention(q, k, v, causal & (documents[:, None] == documents[None, :]))


def example_of_packed(draw: Draw) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Three documents in a row."""
    shape = draw.size("batch"), draw.size("length", least=6, most=_LONGEST), draw.size("width", least=2)
    documents = torch.arange(shape[1]) * 3 // shape[1]
    return draw.tensor(*shape), draw.tensor(*shape), draw.tensor(*shape), documents


def masked_attention(q: Tensor, k: Tensor, v: Tensor, there: Tensor | None) -> Tensor:
    """Of what is there [queries, keys]; all is without a mask."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if there is not None:
        scores = scores.masked_fill(~there, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v
