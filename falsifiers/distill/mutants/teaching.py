"""Subjects whose teacher is not one, or whose student goes the wrong way: one known defect each."""

from __future__ import annotations

import torch
from torch import Tensor

from falsifiers.distill.mutants.training import CopiedTeacher
from falsifiers.distill.reference import Distillation
from harness import Setting

__all__ = ["Ascending", "JitteredCopy", "OneModel", "ShiftedVocabulary", "UnconditionalTeacher"]


class JitteredCopy(CopiedTeacher):
    """The teacher is the student with noise of 1e-4: other bytes and another hash, but the same model."""

    def __init__(self, setting: Setting) -> None:
        """Add the noise."""
        super().__init__(setting)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in self.teacher.parameters():
                weight += 1e-4 * torch.randn(weight.shape, generator=generator).to(weight)


class OneModel(Distillation):
    """Teacher and student are one object: a reference where a copy was meant."""

    def __init__(self, setting: Setting) -> None:
        """Point at the student twice."""
        super().__init__(setting)
        self.teacher = self.student


class ShiftedVocabulary(Distillation):
    """The teacher speaks another vocabulary: every token of its answer is one off (another tokenizer, #1877)."""

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """The logits of the neighbouring tokens."""
        return super().teacher_logits(tokens).roll(1, dims=-1)


class UnconditionalTeacher(Distillation):
    """The teacher never sees the input: what it answers is what it would say to an empty page."""

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """The answer to token 10 alone, at every position."""
        return super().teacher_logits(torch.full_like(tokens[:, :1], 10)).expand(*tokens.shape, -1).contiguous()


class Ascending(Distillation):
    """The sign of the loss is lost on its way to the optimizer: the student climbs."""

    def update(self, loss: Tensor, step: int) -> None:
        """Minimise what should be maximised."""
        super().update(-loss, step)
