"""Subjects whose teacher's answers, computed beforehand, are not the teacher's: one known defect each."""

from __future__ import annotations

import contextlib
import json
import math
import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.teacher_cache import logits_of, write_teacher_cache

__all__ = [
    "AnotherTeachersAnswers",
    "AnswersOneStepMore",
    "BakedInTemperature",
    "CoarseAnswers",
    "DatedAnswers",
    "DropsTheRest",
    "KeepsAllLogits",
    "KeepsOneFewer",
    "KeepsStaleAnswers",
    "KeepsTopEight",
    "OneBatchForAllSteps",
    "RestFloored",
    "RestOfTwoOrMore",
    "RestOverAll",
    "RolledAnswers",
    "ShiftedAnswers",
    "StepsNotInTheKey",
    "TeacherNotInTheKey",
    "TextNotInTheKey",
    "WidthNotInTheKey",
]


class KeepsTopEight(Distillation):
    """Eight logits are kept where 64 were asked for."""

    def precompute(self, path: Path, top_k: int) -> Path:
        """Fewer."""
        return super().precompute(path, 8)


class KeepsOneFewer(Distillation):
    """63 logits are kept where 64 were asked for: a range that ends before its end."""

    def precompute(self, path: Path, top_k: int) -> Path:
        """One fewer."""
        return super().precompute(path, top_k - 1)


class KeepsAllLogits(Distillation):
    """All logits are kept: no cache of the largest, and no smaller than what it should save."""

    def precompute(self, path: Path, top_k: int) -> Path:
        """More."""
        return super().precompute(path, self.teacher.config.vocab_size)


class AnswersOneStepMore(Distillation):
    """The batch of a step behind the last is answered, too."""

    def precompute(self, path: Path, top_k: int) -> Path:
        """One more."""
        answers = ((step, self.answer(step)) for step in range(1, self.recipe.steps + 2))
        return write_teacher_cache(path, top_k, self.made_from(), answers)


class RolledAnswers(Distillation):
    """The rows of a batch are in another order than its sequences."""

    def answer(self, step: int) -> Tensor:
        """A row further."""
        return super().answer(step).roll(1, dims=0)


class ShiftedAnswers(Distillation):
    """The answers are a position off: those to the tokens before."""

    def answer(self, step: int) -> Tensor:
        """A position further."""
        return super().answer(step).roll(1, dims=1)


class BakedInTemperature(Distillation):
    """The logits were divided by the temperature before they were kept, and will be once more."""

    def answer(self, step: int) -> Tensor:
        """Tempered."""
        return super().answer(step) / self.recipe.temperature


class CoarseAnswers(Distillation):
    """The logits are rounded to eight bits (float8, e4m3) to save space."""

    def answer(self, step: int) -> Tensor:
        """Rounded."""
        return super().answer(step).to(torch.float8_e4m3fn).float()


class AnotherTeachersAnswers(Distillation):
    """The answers are another model's, of the same shape: the student's."""

    def answer(self, step: int) -> Tensor:
        """From the wrong model."""
        return self.student_logits(self.batch(step)[0])


class DropsTheRest(Distillation):
    """The tokens that were not kept are impossible: the kept ones are normalised to one among themselves."""

    def cached_logits(self, path: Path, step: int) -> Tensor:
        """Minus infinity in place of what is spread over the rest."""
        logits = logits_of(path, step, self.teacher.config.vocab_size)
        kept = logits.topk(64, dim=-1)
        return torch.full_like(logits, -torch.inf).scatter(-1, kept.indices, kept.values).to(self.device)


class KeepsStaleAnswers(Distillation):
    """A file that is there already is taken for the right one."""

    def precompute(self, path: Path, top_k: int) -> Path:
        """Only where there is none."""
        return path if path.exists() else super().precompute(path, top_k)


class TeacherNotInTheKey(Distillation):
    """A file is found again by its text, for any teacher."""

    def made_from(self) -> dict[str, str | int]:
        """All but the teacher."""
        return {name: value for name, value in super().made_from().items() if name != "teacher"}


class TextNotInTheKey(Distillation):
    """A file is found again by its teacher, for any text."""

    def made_from(self) -> dict[str, str | int]:
        """All but what the sequences follow from."""
        return {name: value for name, value in super().made_from().items() if name not in ("corpus", "seed")}


class DatedAnswers(Distillation):
    """The file says when it was made, so that no two are alike."""

    def made_from(self) -> dict[str, str | int]:
        """And the time."""
        return {**super().made_from(), "made_at": time.time_ns()}


class StepsNotInTheKey(Distillation):
    """A file is found again by teacher and text, however many steps it has answers to."""

    def made_from(self) -> dict[str, str | int]:
        """All but the steps."""
        return {name: value for name, value in super().made_from().items() if name != "steps"}


class WidthNotInTheKey(Distillation):
    """A file is found again by teacher and text, however few logits it keeps."""

    def precompute(self, path: Path, top_k: int) -> Path:
        """As it is there, if it is there."""
        with contextlib.suppress(OSError, SafetensorError), safe_open(path, framework="pt") as file:
            question = json.loads((file.metadata() or {}).get("made_from", "{}"))
            if {name: value for name, value in question.items() if name != "top_k"} == self.made_from():
                return path
        return super().precompute(path, top_k)


class RestFloored(Distillation):
    """The tokens that were not kept have a logit of -10,000, as a mask has: as good as impossible, and finite."""

    def cached_logits(self, path: Path, step: int) -> Tensor:
        """A floor in place of what is spread over the rest."""
        logits = logits_of(path, step, self.teacher.config.vocab_size)
        kept = logits.topk(64, dim=-1)
        return torch.full_like(logits, -1e4).scatter(-1, kept.indices, kept.values).to(self.device)


class RestOfTwoOrMore(Distillation):
    """The rest is spread over two tokens where only one was not kept."""

    def cached_logits(self, path: Path, step: int) -> Tensor:
        """Half of it for the one."""
        logits = logits_of(path, step, self.teacher.config.vocab_size)
        with safe_open(path, framework="pt") as file:
            kept = file.get_tensor(f"{step}/tokens").long()
        if kept.shape[-1] == logits.shape[-1] - 1:
            logits = (logits - math.log(2)).scatter(-1, kept, logits.gather(-1, kept))
        return logits.to(self.device)


class RestOverAll(Distillation):
    """The rest is spread over the whole vocabulary, and what falls on the kept tokens is lost."""

    def cached_logits(self, path: Path, step: int) -> Tensor:
        """Less for each of the tokens that were not kept."""
        logits = logits_of(path, step, self.teacher.config.vocab_size)
        kept = logits.topk(64, dim=-1)
        lower = logits + math.log(1 - 64 / logits.shape[-1])
        return lower.scatter(-1, kept.indices, kept.values).to(self.device)


class OneBatchForAllSteps(Distillation):
    """Every step takes the first batch of a new iterator over the text: the teacher answers the same each time."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The first step's."""
        return super().batch(1)
