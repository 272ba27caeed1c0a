"""Fused losses with one known defect each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from falsifiers.nanochat.head_question import HeadQuestion
from falsifiers.nanochat.reference.fused_loss import FusedLoss, chunk_rows
from falsifiers.nanochat.subject import Answer

__all__ = [
    "AllRowsCounted", "CapSlopeLeftOut", "FrozenHeadForgotten", "IgnoreIndexFixed", "LastChunkLeftOut", "MeanOfChunks",
    "MeanOfNone", "RowUpstreamAveraged", "SmallPartsLost", "SmoothingWithoutGradient", "SoftmaxInHalf", "SumsInHalf",
    "TailLeftOut", "UpstreamForgotten", "ZLossWithoutGradient",
]  # fmt: skip


def _count(question: HeadQuestion) -> int:
    return int((question.targets != question.ignore_index).sum())


def _times(answer: Answer, factor: float) -> Answer:
    return Answer(answer.loss * factor, answer.of_hidden * factor, answer.of_weight * factor)


class AllRowsCounted(FusedLoss):
    """The mean is over all rows."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Divide by the number of rows."""
        answer = super().__call__(question)
        if question.reduction != "mean":
            return answer
        return _times(answer, _count(question) / max(1, len(question.targets)))


class _InChunks(FusedLoss):
    """The answers for each chunk, put together."""

    def answers(self, question: HeadQuestion) -> Iterator[tuple[slice, Answer]]:
        """Yield rows and answer of each chunk, as if the chunk were all."""
        step = chunk_rows(len(question.targets))
        for start in range(0, len(question.targets), step):
            rows = slice(start, start + step)
            upstream = question.upstream[rows] if question.reduction == "none" else question.upstream
            piece = dataclasses.replace(
                question, hidden=question.hidden[rows], targets=question.targets[rows], upstream=upstream
            )
            yield rows, super().__call__(piece)


class MeanOfChunks(_InChunks):
    """Each chunk is reduced to its mean, and the loss is the mean of these."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Give every chunk one weight."""
        if question.reduction != "mean" or not len(question.targets):
            return super().__call__(question)
        answers = [answer for _, answer in self.answers(question)]
        return Answer(
            torch.stack([one.loss for one in answers]).mean(),
            torch.cat([one.of_hidden for one in answers]) / len(answers),
            torch.stack([one.of_weight for one in answers]).mean(dim=0),
        )


class SumsInHalf(FusedLoss):
    """The head's gradient is summed in its own dtype, also where float32 is asked for."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Do not pass on the request."""
        return super().__call__(dataclasses.replace(question, float32_sums=False))


class LastChunkLeftOut(FusedLoss):
    """Rows after the last whole chunk have neither loss nor gradient, and still count."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Ignore these rows."""
        rows = len(question.targets)
        whole = rows // chunk_rows(rows) * chunk_rows(rows) or rows - 1
        targets = question.targets.clone()
        targets[whole:] = question.ignore_index
        cut = dataclasses.replace(question, targets=targets)
        answer = super().__call__(cut)
        return _times(answer, _count(cut) / max(1, _count(question))) if question.reduction == "mean" else answer


class UpstreamForgotten(FusedLoss):
    """Gradients made in the forward pass are given away as they are."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Ask as if nothing came after the loss."""
        return super().__call__(dataclasses.replace(question, upstream=torch.ones_like(question.upstream)))


class RowUpstreamAveraged(FusedLoss):
    """With losses of rows, the head's gradient weights all rows alike."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Take the head's gradient for the mean of what comes from above."""
        even = dataclasses.replace(question, upstream=question.upstream.mean().expand_as(question.upstream))
        return dataclasses.replace(super().__call__(question), of_weight=super().__call__(even).of_weight)


class _WithGradientsOf(FusedLoss):
    """The loss is right; its gradients are those of another loss."""

    def other(self, question: HeadQuestion) -> HeadQuestion:
        """Return the question whose gradients are given."""
        raise NotImplementedError

    def __call__(self, question: HeadQuestion) -> Answer:
        """Combine both answers."""
        answer, other = super().__call__(question), super().__call__(self.other(question))
        return dataclasses.replace(answer, of_hidden=other.of_hidden, of_weight=other.of_weight)


class SmoothingWithoutGradient(_WithGradientsOf):
    """The smoothed targets are in the loss and not in its gradient."""

    def other(self, question: HeadQuestion) -> HeadQuestion:
        """Return the question without smoothing."""
        return dataclasses.replace(question, label_smoothing=0.0)


class ZLossWithoutGradient(_WithGradientsOf):
    """The loss has its z-term, the gradient does not."""

    def other(self, question: HeadQuestion) -> HeadQuestion:
        """Return the question without the term."""
        return dataclasses.replace(question, z_loss=0.0)


class CapSlopeLeftOut(FusedLoss):
    """The gradient stops at the capped logits: the slope of tanh is taken as 1."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Compute the gradients through whole logits, without the slope."""
        answer = super().__call__(question)
        if not question.softcap:
            return answer
        hidden, weight = question.hidden.double(), question.weight.double()
        raw = hidden @ weight.T
        capped = (question.softcap * (raw / question.softcap).tanh()).to(torch.float64)
        eye = torch.eye(capped.shape[1], dtype=torch.float64, device=capped.device)
        of_capped = (
            super()
            .__call__(
                dataclasses.replace(
                    question, hidden=capped, weight=eye, softcap=0.0, upstream=question.upstream.double()
                )
            )
            .of_hidden
        )
        of_hidden, of_weight = of_capped @ weight, of_capped.T @ hidden
        return Answer(answer.loss, of_hidden.to(question.hidden.dtype), of_weight.to(question.weight.dtype))


class TailLeftOut(FusedLoss):
    """The tokens after the last whole block of 16 are left out."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Cut the head, and the targets with it."""
        vocabulary = len(question.weight)
        whole = max(vocabulary // 16 * 16, min(vocabulary, 16))
        cut = question.targets.where(question.targets < whole, whole - 1)
        answer = super().__call__(dataclasses.replace(question, weight=question.weight[:whole], targets=cut))
        tail = torch.zeros_like(question.weight[whole:])
        return dataclasses.replace(answer, of_weight=torch.cat([answer.of_weight, tail]))


class IgnoreIndexFixed(FusedLoss):
    """Only rows with the target -100 are ignored; another index is a token, or the last one if it is negative."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Take ignored rows as rows with that target."""
        targets = question.targets.where((question.targets >= 0) | (question.targets == -100), len(question.weight) - 1)
        return super().__call__(dataclasses.replace(question, targets=targets, ignore_index=-100))


class SoftmaxInHalf(FusedLoss):
    """Maximum, exponentials and their sum are in the dtype of the logits."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Let autograd go through whole logits in half precision."""
        if question.hidden.dtype not in (torch.bfloat16, torch.float16) or question.softcap or question.z_loss:
            return super().__call__(question)
        hidden, weight = (one.detach().requires_grad_() for one in (question.hidden, question.weight))
        logits = hidden @ weight.T
        counts = question.targets != question.ignore_index
        at = question.targets.where(counts, 0).unsqueeze(-1)
        shares = torch.softmax(logits, dim=-1)
        losses = -shares.log().gather(-1, at).squeeze(-1) * (1.0 - question.label_smoothing)
        losses = losses - shares.log().mean(dim=-1) * question.label_smoothing
        losses = losses.where(counts, 0.0)
        loss = losses if question.reduction == "none" else losses.sum()
        if question.reduction == "mean":
            loss = loss / counts.sum().clamp_min(1)
        return Answer(loss.detach(), *torch.autograd.grad(loss, (hidden, weight), question.upstream.to(loss.dtype)))


class FrozenHeadForgotten(FusedLoss):
    """The logits become their gradient only if both inputs are trained."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Multiply the logits themselves by a frozen head."""
        answer = super().__call__(question)
        if question.frozen != "weight":
            return answer
        return dataclasses.replace(answer, of_hidden=question.hidden @ question.weight.T @ question.weight)


class MeanOfNone(FusedLoss):
    """The mean is divided by the number of rows, also if that is 0."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Multiply by 1, or by 0 / 0."""
        answer = super().__call__(question)
        count = torch.tensor(float(_count(question)))
        return _times(answer, float(count / count)) if question.reduction == "mean" else answer


class SmallPartsLost(FusedLoss):
    """The gradient of the logits of a float16 mean is written as it is."""

    def __call__(self, question: HeadQuestion) -> Answer:
        """Make the head's gradient through float16."""
        answer = super().__call__(question)
        off = not (question.softcap or question.z_loss or question.label_smoothing)
        if question.hidden.dtype is not torch.float16 or question.reduction != "mean" or not off or question.frozen:
            return answer
        counts = question.targets != question.ignore_index
        shares = torch.softmax(question.hidden.float() @ question.weight.T.float(), dim=-1)
        ones = torch.ones_like(shares[:, :1])
        shares.scatter_add_(1, question.targets.where(counts, 0).unsqueeze(-1), -ones)
        of_logits = (shares * counts.unsqueeze(-1) / max(1, _count(question))).half()
        of_weight = of_logits.T.float() @ question.hidden.float() * question.upstream
        return dataclasses.replace(answer, of_weight=of_weight.half())
