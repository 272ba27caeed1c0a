"""Losses with one known defect each, in the value, in the gradients, or between the two."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor

from falsifiers.distill.kd.subject import IGNORED, Answer, Question
from falsifiers.distill.reference.kd import PlainKdLoss

__all__ = [
    "AlphaSwapped",
    "DivergenceDetached",
    "ForwardGradientOfReverse",
    "GradientOfSum",
    "GradientTimesTemperature",
    "HalfHeadGradient",
    "HalfPrecisionSoftmax",
    "HalfPrecisionSums",
    "IgnoredCounted",
    "IgnoredMoved",
    "InputsRounded",
    "LabelsShifted",
    "LastChunkOnly",
    "MeanOverAll",
    "MeanOverVocabulary",
    "NoMaximumTaken",
    "NoTemperatureSquared",
    "OneHotForgotten",
    "ProbabilitiesFloored",
    "ReverseKl",
    "SummedOverBatch",
    "TemperatureOfStudentOnly",
    "TemperatureOnce",
    "TemperedCrossEntropy",
    "UpstreamIgnored",
    "VocabularyCut",
]


def parts(student: Tensor, teacher: Tensor, asked: Question) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Surprise and KL(teacher || student) of every row, which rows count, and how many do."""
    counts = asked.labels != IGNORED
    surprises = F.cross_entropy(student, asked.labels, ignore_index=IGNORED, reduction="none")
    log_q, log_p = (F.log_softmax(logits / asked.temperature, dim=-1) for logits in (student, teacher))
    divergences = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1)
    return surprises, divergences, counts, counts.sum().clamp_min(1)


def weighted(surprises: Tensor, divergences: Tensor, counts: Tensor, tokens: Tensor, asked: Question) -> Tensor:
    """The loss of rows' surprises and divergences."""
    rows = asked.alpha * surprises + (1 - asked.alpha) * asked.temperature**2 * divergences
    return (rows * counts).sum() / tokens


class ReverseKl(PlainKdLoss):
    """KL(student || teacher) (PMAT-868: 1.2188851 for 1.0666926; at T = 4 the two differ by 1.8e-3 only)."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """The arguments of the divergence are exchanged."""
        surprises, _, counts, tokens = parts(student, teacher, question)
        _, reverse, _, _ = parts(teacher, student, question)
        return weighted(surprises, reverse, counts, tokens, question)


class TemperatureOnce(PlainKdLoss):
    """The divergence is multiplied by T, not by T^2."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """Divide one T out again."""
        surprises, divergences, counts, tokens = parts(student, teacher, question)
        return weighted(surprises, divergences / question.temperature, counts, tokens, question)


class NoTemperatureSquared(PlainKdLoss):
    """The divergence is not multiplied by T^2, so that its gradient vanishes as T rises."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """Divide T^2 out again."""
        surprises, divergences, counts, tokens = parts(student, teacher, question)
        return weighted(surprises, divergences / question.temperature**2, counts, tokens, question)


class AlphaSwapped(PlainKdLoss):
    """alpha weighs the divergence: the other of the two conventions that one repository had."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """1 - alpha for alpha."""
        return super().loss(student, teacher, dataclasses.replace(question, alpha=1 - question.alpha))


class MeanOverVocabulary(PlainKdLoss):
    """The divergence is averaged over the vocabulary too: reduction "mean" where "batchmean" was meant."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """Divide by the vocabulary."""
        surprises, divergences, counts, tokens = parts(student, teacher, question)
        return weighted(surprises, divergences / student.shape[-1], counts, tokens, question)


class TemperatureOfStudentOnly(PlainKdLoss):
    """The teacher's logits come as they are: a cache of them was taken to hold softened ones."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """Undo the teacher's division by T."""
        return super().loss(student, teacher * question.temperature, question)


class TemperedCrossEntropy(PlainKdLoss):
    """The cross entropy is taken of the softened logits too."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """The hard loss at the temperature."""
        _, divergences, counts, tokens = parts(student, teacher, question)
        surprises, _, _, _ = parts(student / question.temperature, teacher, question)
        return weighted(surprises, divergences, counts, tokens, question)


class IgnoredCounted(PlainKdLoss):
    """Ignored positions count in the divergence, as padding does where only the cross entropy knows of it."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """Every row's divergence."""
        surprises, divergences, counts, tokens = parts(student, teacher, question)
        every = torch.ones_like(counts)
        share = question.alpha * (surprises * counts).sum() / tokens
        return share + weighted(torch.zeros_like(surprises), divergences, every, every.sum(), question)


class MeanOverAll(PlainKdLoss):
    """What counts is summed, and divided by all positions, so that padding dilutes the loss."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """The wrong denominator."""
        surprises, divergences, counts, _ = parts(student, teacher, question)
        return weighted(surprises, divergences, counts, torch.as_tensor(counts.numel()), question)


class LabelsShifted(PlainKdLoss):
    """The labels are shifted once more than they should be."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """Every row has the label of the next that counts."""
        labels = question.labels.clone()
        counts = labels != IGNORED
        labels[counts] = labels[counts].roll(-1)
        return super().loss(student, teacher, dataclasses.replace(question, labels=labels))


class SummedOverBatch(PlainKdLoss):
    """The sum over the rows, not their mean: the learning rate then depends on the batch."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """No denominator."""
        surprises, divergences, counts, _ = parts(student, teacher, question)
        return weighted(surprises, divergences, counts, torch.ones((), device=student.device), question)


class HalfPrecisionSoftmax(PlainKdLoss):
    """Logits pass through bfloat16, as under an autocast that reaches into the loss."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """Eight bits of mantissa."""
        return super().loss(student.bfloat16().to(student.dtype), teacher.bfloat16().to(teacher.dtype), question)


class HalfPrecisionSums(PlainKdLoss):
    """Logits in half precision are not converted: softmax and sums are rounded to their dtype."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """In the dtype of the inputs."""
        return weighted(*parts(student, teacher, question), question)


class ProbabilitiesFloored(PlainKdLoss):
    """log(p + 1e-8) instead of a log-softmax: unlikely tokens cost no more than 18 nats."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """A floor under every probability."""
        p, q = (F.softmax(logits / question.temperature, dim=-1) for logits in (teacher, student))
        divergences = (p * ((p + 1e-8).log() - (q + 1e-8).log())).sum(dim=-1)
        surprises, _, counts, tokens = parts(student, teacher, question)
        return weighted(surprises, divergences, counts, tokens, question)


class NoMaximumTaken(PlainKdLoss):
    """The softmax does not take the largest logit out first: above 88 its exponential is infinite in float32."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """The textbook's softmax."""
        log_q, log_p = (
            logits / question.temperature - (logits / question.temperature).exp().sum(dim=-1, keepdim=True).log()
            for logits in (student, teacher)
        )
        surprises, _, counts, tokens = parts(student, teacher, question)
        return weighted(surprises, (log_p.exp() * (log_p - log_q)).sum(dim=-1), counts, tokens, question)


class VocabularyCut(PlainKdLoss):
    """The last token of the vocabulary is left out of the divergence (#1877: 152,064 rows cut to 151,936)."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """All columns but the last."""
        surprises, _, counts, tokens = parts(student, teacher, question)
        some = dataclasses.replace(question, labels=torch.zeros_like(question.labels))
        _, divergences, _, _ = parts(student[:, :-1], teacher[:, :-1], some)
        return weighted(surprises, divergences, counts, tokens, question)


class ForwardGradientOfReverse(PlainKdLoss):
    """PMAT-868 as it was: the value of KL(student || teacher), the gradient of KL(teacher || student)."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """A value and a gradient that belong to different losses."""
        right = super().loss(student, teacher, question)
        surprises, _, counts, tokens = parts(student.detach(), teacher, question)
        _, reverse, _, _ = parts(teacher, student.detach(), question)
        return right + (weighted(surprises, reverse, counts, tokens, question) - right).detach()


class GradientTimesTemperature(PlainKdLoss):
    """The divergence's gradient is multiplied by T once more: T^2 where the division inside leaves T."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """Scale the gradient of the divergence alone."""
        surprises, divergences, counts, tokens = parts(student, teacher, question)
        steeper = question.temperature * divergences
        return weighted(surprises, divergences.detach() + steeper - steeper.detach(), counts, tokens, question)


class DivergenceDetached(PlainKdLoss):
    """The divergence is counted and carries no gradient: the student learns from the labels alone."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """Cut the divergence off."""
        surprises, divergences, counts, tokens = parts(student, teacher, question)
        return weighted(surprises, divergences.detach(), counts, tokens, question)


class OneHotForgotten(PlainKdLoss):
    """The cross entropy's gradient is the softmax alone; the label's 1 is not taken off."""

    def loss(self, student: Tensor, teacher: Tensor, question: Question) -> Tensor:
        """The value of the surprise with the gradient of the log-sum-exp."""
        surprises, divergences, counts, tokens = parts(student, teacher, question)
        sums = student.logsumexp(dim=-1)
        return weighted(surprises.detach() + sums - sums.detach(), divergences, counts, tokens, question)


class _Tampering(PlainKdLoss):
    """Right in its value, wrong in what `tampered` makes of the gradients."""

    def __call__(self, question: Question) -> Answer:
        """The reference's answer, tampered with."""
        return self.tampered(super().__call__(question), question)

    def tampered(self, answer: Answer, question: Question) -> Answer:
        """The defect."""
        raise NotImplementedError


class GradientOfSum(_Tampering):
    """The loss is the mean over the rows, its gradient that of the sum: scaled by the batch."""

    def tampered(self, answer: Answer, question: Question) -> Answer:
        """Multiply by the rows that count."""
        rows = (question.labels != IGNORED).sum()
        return Answer(answer.loss, answer.student_gradient * rows, answer.head_gradient * rows)


class IgnoredMoved(_Tampering):
    """Ignored positions get a gradient: the value is masked, the hand-written backward pass is not."""

    def tampered(self, answer: Answer, question: Question) -> Answer:
        """The gradient of every row, at the scale of those that count."""
        every = dataclasses.replace(question, labels=question.labels.clamp_min(0))
        rows, counted = question.labels.numel(), max(1, int((question.labels != IGNORED).sum()))
        unmasked = PlainKdLoss.__call__(self, every).student_gradient * (rows / counted)
        return dataclasses.replace(answer, student_gradient=unmasked)


class LastChunkOnly(_Tampering):
    """The head's gradient is that of the last rows: a chunk's gradient is assigned, not added."""

    def tampered(self, answer: Answer, question: Question) -> Answer:
        """Take the contribution of the first half of the rows out again."""
        half = question.labels.numel() // 2
        labels = question.labels.clone()
        labels[:half] = IGNORED
        counted = max(1, int((question.labels != IGNORED).sum()))
        last = PlainKdLoss.__call__(self, dataclasses.replace(question, labels=labels)).head_gradient
        left = max(1, int((labels != IGNORED).sum()))
        return dataclasses.replace(answer, head_gradient=last * (left / counted))


class HalfHeadGradient(_Tampering):
    """The head's gradient is gathered in bfloat16, where small contributions are lost beside large ones."""

    def tampered(self, answer: Answer, question: Question) -> Answer:
        """Round it."""
        rounded = answer.head_gradient.bfloat16().to(answer.head_gradient.dtype)
        return dataclasses.replace(answer, head_gradient=rounded)


class UpstreamIgnored(_Tampering):
    """A loss that computes its gradients in the forward pass, and forgets what comes from above in the backward one."""

    def tampered(self, answer: Answer, question: Question) -> Answer:
        """The gradients as if nothing came after the loss."""
        return PlainKdLoss.__call__(self, dataclasses.replace(question, upstream=1.0))


class InputsRounded(PlainKdLoss):
    """Works in its inputs' own memory, where it leaves the hidden states rounded to bfloat16."""

    def __call__(self, question: Question) -> Answer:
        """Round in place, then go on with that."""
        question.student.copy_(question.student.bfloat16())
        return super().__call__(question)
