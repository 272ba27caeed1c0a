"""Attentions with one known defect each, in output and gradients alike unless they say otherwise."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from falsifiers.recsys.reference.dense_attention import Float64Attention
from falsifiers.recsys.subject import Answer, Question
from harness import Setting

__all__ = [
    "AdditiveMask", "AllMaskForgottenBackward", "AlphaInverse", "AlphaOfTheWidth", "AlphaTooLarge", "CoarseSigmoid",
    "ContextualRowsForgotten", "ContextualsIgnored", "CountsTakenForContiguous", "DiagonalDropped",
    "FirstCountsKept", "FullRowsForgotten",
    "GradientTakenForContiguous", "GroupTooLarge", "InOrderOfArrival", "InputScaled",
    "KeysWithoutAlpha", "LongestForScaling", "NextSequenceSeen", "NoScaling", "NonCausal", "OneMoreInScaling",
    "QueriesInHalf", "ScalingTooLarge", "SequencesLeftOut", "SigmoidAsSlope", "SmallRowsFlushed", "Softmax",
    "StridesAssumed", "StridesInEights", "TargetsSeeEachOther", "WindowForgotten",
]  # fmt: skip


class _Asked(Float64Attention):
    """The right answer to another question."""

    def other(self, question: Question) -> Question:
        """Return the question that is answered."""
        raise NotImplementedError

    def __call__(self, question: Question) -> Answer:
        """Answer the other question."""
        return super().__call__(self.other(question))


class Softmax(Float64Attention):
    """Weights are a softmax."""

    def weights(self, question: Question, scores: Tensor, valid: Tensor) -> Tensor:
        """Normalise each row."""
        return torch.softmax(scores.masked_fill(~valid, -torch.inf), dim=-1).nan_to_num()

    def slopes(self, question: Question, scores: Tensor, valid: Tensor) -> Tensor:
        """Take the diagonal of the softmax's derivative."""
        shares = self.weights(question, scores, valid)
        return shares * (1.0 - shares)


class AdditiveMask(Float64Attention):
    """Scores that are masked become minus infinity before the silu, as before a softmax."""

    def weights(self, question: Question, scores: Tensor, valid: Tensor) -> Tensor:
        """Multiply minus infinity by its sigmoid, which is 0."""
        return torch.nn.functional.silu(scores.masked_fill(~valid, -torch.inf)) / question.scaling_seqlen

    def slopes(self, question: Question, scores: Tensor, valid: Tensor) -> Tensor:
        """Do the same in the derivative."""
        masked = scores.masked_fill(~valid, -torch.inf)
        sigmoid = torch.sigmoid(masked)
        return sigmoid * (1.0 + masked * (1.0 - sigmoid)) / question.scaling_seqlen


class CoarseSigmoid(Float64Attention):
    """The sigmoid is that of a tanh of eleven bits, which is exact enough for bfloat16 only."""

    def weights(self, question: Question, scores: Tensor, valid: Tensor) -> Tensor:
        """Multiply by it."""
        tanh = (torch.tanh(scores / 2.0) * 2.0**11).round() / 2.0**11
        return scores * (0.5 + 0.5 * tanh) / question.scaling_seqlen * valid


class NoScaling(_Asked):
    """Nothing is divided by the scaling length."""

    def other(self, question: Question) -> Question:
        """Ask for a scaling length of 1."""
        return dataclasses.replace(question, scaling_seqlen=1)


class OneMoreInScaling(_Asked):
    """The scaling length is one too large."""

    def other(self, question: Question) -> Question:
        """Ask for one more."""
        return dataclasses.replace(question, scaling_seqlen=question.scaling_seqlen + 1)


class ScalingTooLarge(Float64Attention):
    """The scaling length is two per cent too large."""

    def __call__(self, question: Question) -> Answer:
        """Shrink everything."""
        answer = super().__call__(question)
        return Answer(
            *((getattr(answer, one.name).double() / 1.02).to(question.q.dtype) for one in dataclasses.fields(answer))
        )


class LongestForScaling(_Asked):
    """The longest sequence takes the place of the scaling length."""

    def other(self, question: Question) -> Question:
        """Ask for it."""
        return dataclasses.replace(question, scaling_seqlen=question.max_seqlen)


class AlphaTooLarge(_Asked):
    """Scores are one per cent too large."""

    def other(self, question: Question) -> Question:
        """Ask for another alpha."""
        return dataclasses.replace(question, alpha=question.alpha * 1.01)


class AlphaOfTheWidth(_Asked):
    """Scores are divided by the root of the width, whatever alpha is."""

    def other(self, question: Question) -> Question:
        """Ask for another alpha."""
        return dataclasses.replace(question, alpha=question.q.shape[2] ** -0.5)


class InputScaled(Float64Attention):
    """Queries are multiplied by alpha where they are."""

    def __call__(self, question: Question) -> Answer:
        """Answer first, so that the values are right."""
        answer = super().__call__(question)
        question.q.mul_(question.alpha)
        return answer


class AlphaInverse(_Asked):
    """Scores are divided by the width, not by its root."""

    def other(self, question: Question) -> Question:
        """Ask for another alpha."""
        return dataclasses.replace(question, alpha=1.0 / question.q.shape[2])


class TargetsSeeEachOther(_Asked):
    """Targets attend to targets of other groups."""

    def other(self, question: Question) -> Question:
        """Ask without targets."""
        return dataclasses.replace(question, num_targets=None)


class GroupTooLarge(_Asked):
    """A group is 16 targets, whatever is asked for."""

    def other(self, question: Question) -> Question:
        """Ask for such groups."""
        return dataclasses.replace(question, target_group_size=16)


class ContextualsIgnored(_Asked):
    """Contextual rows are history."""

    def other(self, question: Question) -> Question:
        """Ask without them."""
        return dataclasses.replace(question, num_contextuals=None)


class ContextualRowsForgotten(Float64Attention):
    """Contextual rows see each other, and nothing that comes later."""

    def valid(self, question: Question, there: Tensor) -> Tensor:
        """Leave out what only their rule allows."""
        if question.num_contextuals is None:
            return super().valid(question, there)
        plain = super().valid(dataclasses.replace(question, num_contextuals=None), there)
        first = torch.arange(there.shape[1], device=there.device) < question.num_contextuals.view(-1, 1)
        among = (first[:, :, None] & first[:, None, :]).unsqueeze(1)
        return super().valid(question, there) & (plain | among | ~first[:, None, :, None])


class DiagonalDropped(Float64Attention):
    """No row attends to itself."""

    def valid(self, question: Question, there: Tensor) -> Tensor:
        """Leave the diagonal out."""
        return super().valid(question, there) & ~torch.eye(there.shape[1], dtype=torch.bool, device=there.device)


class NonCausal(_Asked):
    """Rows attend to later keys."""

    def other(self, question: Question) -> Question:
        """Ask for that."""
        return dataclasses.replace(question, causal=False)


class WindowForgotten(_Asked):
    """Rows attend to any distance."""

    def other(self, question: Question) -> Question:
        """Ask for no limit."""
        return dataclasses.replace(question, max_attn_len=0)


class FullRowsForgotten(_Asked):
    """The last rows of the history are limited as the others are."""

    def other(self, question: Question) -> Question:
        """Ask for no such rows."""
        return dataclasses.replace(question, min_full_attn_seq_len=0)


class NextSequenceSeen(Float64Attention):
    """The last row of a sequence attends to the first row of the next one too."""

    def __call__(self, question: Question) -> Answer:
        """Add what that key gives, in the output and the value's gradient."""
        answer = super().__call__(question)
        ends = question.offsets[1:-1]
        ends = ends[(ends > 0) & (ends < len(question.q))]
        q, k, v, above = (one.double() for one in (question.q, question.k, question.v, question.above))
        scores = (q[ends - 1] * k[ends]).sum(dim=-1, keepdim=True) * question.alpha
        weights = torch.nn.functional.silu(scores) / question.scaling_seqlen
        out, of_v = answer.out.double(), answer.of_v.double()
        out[ends - 1] += weights * v[ends]
        of_v[ends] += weights * above[ends - 1]
        return dataclasses.replace(answer, out=out.to(answer.out.dtype), of_v=of_v.to(answer.of_v.dtype))


class SequencesLeftOut(Float64Attention):
    """Sequences from the 1,025th on are left out, as if one block of a kernel held all."""

    def __call__(self, question: Question) -> Answer:
        """Write zeros for them."""
        answer = super().__call__(question)
        end = int(question.offsets[:1025][-1])
        parts = (getattr(answer, one.name) for one in dataclasses.fields(answer))
        return Answer(*(torch.cat([one[:end], torch.zeros_like(one[end:])]) for one in parts))


class FirstCountsKept(Float64Attention):
    """Targets are those of the first batch of equal shapes, as an address is that was put together with its strides."""

    def __init__(self, setting: Setting) -> None:
        """Nothing is kept yet."""
        super().__init__(setting)
        self._kept: dict[object, Tensor | None] = {}

    def __call__(self, question: Question) -> Answer:
        """Keep them, or ask with what is kept."""
        key = (question.q.dtype, question.q.shape, question.v.shape, question.offsets.shape, question.max_seqlen)
        targets = self._kept.setdefault(key, question.num_targets)
        return super().__call__(dataclasses.replace(question, num_targets=targets))


class SmallRowsFlushed(Float64Attention):
    """Rows that are small beside the largest one become 0."""

    def __call__(self, question: Question) -> Answer:
        """Flush below a 2000th."""
        answer = super().__call__(question)
        return Answer(*(_flushed(getattr(answer, one.name)) for one in dataclasses.fields(answer)))


class InOrderOfArrival(Float64Attention):
    """Sums are made in another order each time, as with atomic additions."""

    _calls = 0

    def __call__(self, question: Question) -> Answer:
        """Err by a rounding in every second call."""
        self._calls += 1
        answer = super().__call__(question)
        if self._calls % 2:
            return answer
        return Answer(*(_rounded_up(getattr(answer, one.name)) for one in dataclasses.fields(answer)))


class StridesAssumed(Float64Attention):
    """Keys and values are read as if rows and heads were contiguous."""

    def __call__(self, question: Question) -> Answer:
        """Read them so."""
        k, v = (
            torch.as_strided(one, one.shape, torch.empty(one.shape, device="meta").stride(), one.storage_offset())
            for one in (question.k, question.v)
        )
        return super().__call__(dataclasses.replace(question, k=k, v=v))


class StridesInEights(Float64Attention):
    """Keys and values are read by strides of whole 16 bytes, as bulk loads need them."""

    def __call__(self, question: Question) -> Answer:
        """Round strides down."""
        k, v = (
            torch.as_strided(one, one.shape, (*(stride // 8 * 8 for stride in one.stride()[:2]), 1))
            for one in (question.k, question.v)
        )
        return super().__call__(dataclasses.replace(question, k=k, v=v))


class GradientTakenForContiguous(Float64Attention):
    """The gradient of the output is read as if rows and heads were contiguous."""

    def __call__(self, question: Question) -> Answer:
        """Read it so."""
        above = question.above
        strides = torch.empty(above.shape, device="meta").stride()
        read = torch.as_strided(above, above.shape, strides, above.storage_offset())
        return super().__call__(dataclasses.replace(question, above=read))


class CountsTakenForContiguous(Float64Attention):
    """The numbers of targets are read as if they were side by side."""

    def __call__(self, question: Question) -> Answer:
        """Read them so."""
        targets = question.num_targets
        read = None if targets is None else torch.as_strided(targets, targets.shape, (1,), targets.storage_offset())
        return super().__call__(dataclasses.replace(question, num_targets=read))


class _Backward(Float64Attention):
    """The output is right; its gradients are those of another function."""

    def other(self, question: Question) -> Answer:
        """Return the gradients that are given."""
        raise NotImplementedError

    def __call__(self, question: Question) -> Answer:
        """Combine both."""
        return dataclasses.replace(self.other(question), out=super().__call__(question).out)


class AllMaskForgottenBackward(_Backward):
    """The backward pass has the causal mask alone, as a fallback for one width once had."""

    def other(self, question: Question) -> Answer:
        """Leave out all but causality."""
        plain = dataclasses.replace(question, num_targets=None, num_contextuals=None, max_attn_len=0)
        return Float64Attention.__call__(self, plain)


class SigmoidAsSlope(Float64Attention):
    """The slope of silu lacks its second term."""

    def slopes(self, question: Question, scores: Tensor, valid: Tensor) -> Tensor:
        """Return the sigmoid."""
        return torch.sigmoid(scores) / question.scaling_seqlen * valid


class KeysWithoutAlpha(Float64Attention):
    """The gradient of the keys lacks alpha."""

    def __call__(self, question: Question) -> Answer:
        """Divide it out."""
        answer = super().__call__(question)
        of_k = (answer.of_k.double() / question.alpha).to(question.q.dtype)
        return dataclasses.replace(answer, of_k=of_k)


class QueriesInHalf(Float64Attention):
    """The gradient of the queries is summed in the dtype of the inputs, a key at a time."""

    def __call__(self, question: Question) -> Answer:
        """Sum it so."""
        answer = super().__call__(question)
        there, padded = self._padded(question)
        scores = padded.q @ padded.k.transpose(-1, -2) * question.alpha
        slopes = self.slopes(question, scores, self.valid(question, there))
        of_scores = (padded.above @ padded.v.transpose(-1, -2)) * slopes * question.alpha
        total = torch.zeros_like(padded.q, dtype=question.q.dtype)
        for key in range(scores.shape[-1]):
            total += (of_scores[..., key, None] * padded.k[..., key, None, :]).to(total.dtype)
        return dataclasses.replace(answer, of_q=self._jagged(question, there, total))


def _flushed(one: Tensor) -> Tensor:
    rows = one.float().norm(dim=-1, keepdim=True)
    return one if not one.numel() else one.where(rows > rows.max() / 2000.0, 0.0)


def _rounded_up(one: Tensor) -> Tensor:
    return one * (1.0 + torch.finfo(one.dtype).eps)
