"""Liger's loss as one might believe it to be, or had it configured: one known misreading each."""

from __future__ import annotations

import dataclasses

from falsifiers.distill.kd.subject import IGNORED, Answer, Question
from falsifiers.distill.reference.liger import LigerLoss

__all__ = [
    "LigerBetaExchanged",
    "LigerDefaultWeights",
    "LigerHalfPrecision",
    "LigerHardTempered",
    "LigerIgnoredCounted",
    "LigerSquaresTemperature",
    "LigerSummed",
    "LigerUpstreamIgnored",
]


class LigerSquaresTemperature(LigerLoss):
    """The soft part is multiplied by T^2, as the literature has it and Liger has not."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """Another soft weight."""
        return super().__call__(question, hard=hard, soft=soft * question.temperature**2, beta=beta)


class LigerBetaExchanged(LigerLoss):
    """beta counts from the other end: 0 is KL(student || teacher)."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """1 - beta."""
        return super().__call__(question, hard=hard, soft=soft, beta=1.0 - beta)


class LigerDefaultWeights(LigerLoss):
    """The weights never reach the loss, which keeps its defaults of a half each."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """The defaults."""
        return super().__call__(question, hard=0.5, soft=0.5, beta=beta)


class LigerHardTempered(LigerLoss):
    """The cross entropy is taken at the temperature too."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """Both parts of softened logits."""
        softened = dataclasses.replace(
            question,
            student=question.student / question.temperature,
            teacher=question.teacher / question.temperature,
            temperature=1.0,
        )
        return super().__call__(softened, hard=hard, soft=soft, beta=beta)


class LigerIgnoredCounted(LigerLoss):
    """Ignored positions count in the divergence, as they did before Liger masked them."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """The soft part of every row, the hard part of those that count."""
        every = dataclasses.replace(question, labels=question.labels.clamp_min(0))
        of_all = super().__call__(every, hard=0.0, soft=soft, beta=beta)
        of_some = super().__call__(question, hard=hard, soft=0.0, beta=beta)
        parts = zip(dataclasses.astuple(of_all), dataclasses.astuple(of_some), strict=True)
        return Answer(*(one + other for one, other in parts))


class LigerSummed(LigerLoss):
    """The sum over the tokens, not their mean."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """Multiply by the tokens that count."""
        tokens = (question.labels != IGNORED).sum()
        answer = super().__call__(question, hard=hard, soft=soft, beta=beta)
        return Answer(*(part * tokens for part in dataclasses.astuple(answer)))


class LigerHalfPrecision(LigerLoss):
    """Hidden states and heads pass through bfloat16."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """Round them."""
        names = ("student", "student_head", "teacher", "teacher_head")
        rounded = {name: getattr(question, name).bfloat16().float() for name in names}
        return super().__call__(dataclasses.replace(question, **rounded), hard=hard, soft=soft, beta=beta)


class LigerUpstreamIgnored(LigerLoss):
    """What comes from above is forgotten in the backward pass."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """The gradients of the loss alone."""
        return super().__call__(dataclasses.replace(question, upstream=1.0), hard=hard, soft=soft, beta=beta)
