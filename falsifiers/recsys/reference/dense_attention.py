"""HSTU attention with all weights in memory, in plain torch: in float64, or in the dtype of its inputs.

The gradients are explicit formulas, without autograd.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.recsys.subject import Answer, Question
from harness import Setting


@dataclass(frozen=True)
class Padded:
    """Sequences of a question, [batch, heads, longest, width] each, padded with zeros."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad_output: Tensor


class DenseAttention:
    """Every step is in the dtype of the inputs."""

    def __init__(self, setting: Setting) -> None: ...

    def __call__(self, question: Question) -> Answer:
        """Return output and gradients.

        Raises:
            ValueError: the mask has a group of no targets, or a negative length.
        """
        if question.target_group_size < 1 or min(question.max_attn_len, question.min_full_attn_seq_len) < 0:
            raise ValueError("a group has at least one target, and no length of the mask is negative")
        there, padded = self._padded(question)
        scores = padded.q @ padded.k.transpose(-1, -2) * question.alpha
        valid = self.valid(question, there)
        weights = self.weights(question, scores, valid)
        grad_scores = (padded.grad_output @ padded.v.transpose(-1, -2)) * self.slopes(question, scores, valid)
        return Answer(
            self._jagged(question, there, weights @ padded.v),
            self._jagged(question, there, grad_scores @ padded.k * question.alpha),
            self._jagged(question, there, grad_scores.transpose(-1, -2) @ padded.q * question.alpha),
            self._jagged(question, there, weights.transpose(-1, -2) @ padded.grad_output),
        )

    def precision(self, question: Question) -> torch.dtype:
        """Return the dtype of every step."""
        return question.q.dtype

    def valid(self, question: Question, there: Tensor) -> Tensor:
        """Return which rows attend to which keys, [batch, 1, longest, longest]."""
        return (valid_pairs(question, there.shape[1]) & there[:, :, None] & there[:, None, :]).unsqueeze(1)

    def weights(self, question: Question, scores: Tensor, valid: Tensor) -> Tensor:
        """Return the attention weights."""
        return torch.nn.functional.silu(scores) / question.scaling_seqlen * valid

    def slopes(self, question: Question, scores: Tensor, valid: Tensor) -> Tensor:
        """Return the derivatives of the attention weights."""
        sigmoid = torch.sigmoid(scores)
        return sigmoid * (1.0 + scores * (1.0 - sigmoid)) / question.scaling_seqlen * valid

    def _padded(self, question: Question) -> tuple[Tensor, Padded]:
        """Return which places [batch, longest] hold a row, and the padded sequences."""
        lengths = question.offsets.diff()
        places = torch.arange(int(lengths.max()), device=lengths.device)
        there = places < lengths[:, None]
        sequences = []
        for tensor in (question.q, question.k, question.v, question.grad_output):
            whole = tensor.new_zeros(*there.shape, *tensor.shape[1:], dtype=self.precision(question))
            whole[there] = tensor.detach().to(whole.dtype)
            sequences.append(whole.transpose(1, 2))
        return there, Padded(*sequences)

    def _jagged(self, question: Question, there: Tensor, padded: Tensor) -> Tensor:
        return padded.transpose(1, 2)[there].to(question.q.dtype)


class Float64Attention(DenseAttention):
    """Every step is in float64; the results are rounded to the dtype of the inputs."""

    def precision(self, question: Question) -> torch.dtype:
        return torch.float64


def valid_pairs(question: Question, longest: int) -> Tensor:
    """Return which rows attend to which keys, [batch, longest, longest], in the source's formulation."""
    lengths = question.offsets.diff()
    places = torch.arange(longest, device=lengths.device)
    ids, ends = places.expand(len(lengths), longest), lengths.view(-1, 1, 1)
    if question.num_contextuals is not None:
        ids = (places - question.num_contextuals.view(-1, 1) + 1).clamp(min=0)
        ends = ends - question.num_contextuals.view(-1, 1, 1) + 1
    rows, keys = ids.unsqueeze(-1), ids.unsqueeze(-2)
    distance = rows - keys if question.causal else (rows - keys).abs()
    valid = (distance > 0) | torch.eye(longest, dtype=torch.bool, device=lengths.device)
    if question.num_targets is not None:
        targets = question.num_targets.view(-1, 1, 1)
        of_rows, of_keys = (
            (ids_of - ends + targets).clamp(min=-1).div(question.target_group_size, rounding_mode="floor")
            for ids_of in (rows, keys)
        )
        valid = valid & ((of_rows == of_keys) | (of_rows < 0) | (of_keys < 0))
        ends = ends - targets
    if question.max_attn_len > 0:
        near = distance <= question.max_attn_len
        if question.min_full_attn_seq_len > 0:
            near = near | (rows >= ends - question.min_full_attn_seq_len)
        valid = valid & near
    if question.num_contextuals is not None:
        valid = valid | ((rows == 0) & (keys < ends))
    return valid
