"""What the claims need from a subject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

__all__ = ["Answer", "Attention", "Question"]


@dataclass(frozen=True)
class Question:
    """Inputs of HSTU attention and of its gradients.

    Attributes:
        q, k: [rows of all sequences, heads, width], all of one dtype.
        v: [rows, heads, value width].
        above: the gradient of some later loss with respect to the output, of its shape and dtype.
        offsets: [batch + 1] int64: where each sequence starts, and the end.
        max_seqlen: the longest sequence, or more.
        scaling_seqlen: what silu is divided by.
        alpha: the factor of the scores.
        causal: a row attends to earlier keys and to itself.
        num_targets: [batch] int64, or None: the last rows of each sequence that are targets.
        target_group_size: targets that see each other.
        num_contextuals: [batch] int64, or None: the first rows of each sequence that are contextual.
        max_attn_len: the farthest distance that is attended to; 0 for any.
        min_full_attn_seq_len: the last so many rows of the history, and the targets, are free of that limit.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    above: Tensor
    offsets: Tensor
    max_seqlen: int
    scaling_seqlen: int
    alpha: float
    causal: bool
    num_targets: Tensor | None
    target_group_size: int
    num_contextuals: Tensor | None
    max_attn_len: int
    min_full_attn_seq_len: int


@dataclass(frozen=True)
class Answer:
    """The output [rows, heads, value width], and the gradients of the sum of `above * output`."""

    out: Tensor
    of_q: Tensor
    of_k: Tensor
    of_v: Tensor


class Attention(Protocol):
    """HSTU attention; built as `Subject(setting)`."""

    def __call__(self, question: Question) -> Answer:
        """Return output and gradients. Gradients can come from no more than the output's own backward pass."""
        ...
