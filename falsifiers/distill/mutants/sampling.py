"""Subjects that train on other text than they should: one known defect each."""

from __future__ import annotations

import dataclasses
import hashlib
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen2ForCausalLM

from falsifiers.distill.oracle.corpus import Text
from falsifiers.distill.reference import Distillation
from falsifiers.distill.text.corpus import Tokens, sample
from harness import Setting

__all__ = [
    "BatchBefore",
    "BatchByCount",
    "BeginningOnly",
    "BlockStartsOnly",
    "EqualRows",
    "HalfOfTheRows",
    "HalfOfTheSequence",
    "HeldOutToo",
    "LabelsRolled",
    "LongLinesLost",
    "MergedTokens",
    "RandomInputs",
    "RandomLabels",
    "SeedExchanged",
    "TeacherFileShared",
    "TeacherFileTrusted",
    "TeacherHalfTrained",
    "TeacherOneStepShort",
]


class HalfOfTheRows(Distillation):
    """A batch has half of its rows: the other half went to a second device that is not there."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The first half."""
        inputs, labels = super().batch(step)
        return inputs[: len(inputs) // 2], labels[: len(labels) // 2]


class HalfOfTheSequence(Distillation):
    """A tokenizer's default cuts every row to half of its length."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The first half of each row."""
        inputs, labels = super().batch(step)
        half = inputs.shape[1] // 2
        return inputs[:, :half], labels[:, :half]


class EqualRows(Distillation):
    """Every row is the first: the workers of a loader share one seed."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """One row, as often as there are rows."""
        inputs, labels = super().batch(step)
        return inputs[:1].repeat(len(inputs), 1), labels[:1].repeat(len(labels), 1)


class RandomLabels(Distillation):
    """One label in twenty is drawn: noise that an experiment left behind."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The right inputs; some labels are drawn at random."""
        inputs, labels = super().batch(step)
        generator = torch.Generator().manual_seed(step)
        noise = torch.randint(256, labels.shape, generator=generator).to(labels)
        drawn = torch.rand(labels.shape, generator=generator).to(labels.device) < 0.05
        return inputs, torch.where(drawn, noise, labels)


class RandomInputs(Distillation):
    """The last rows are drawn token by token: a buffer that was allocated and not filled to its end."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """One row of the batch is no text; its labels are still its next tokens."""
        inputs, labels = super().batch(step)
        generator = torch.Generator().manual_seed(step)
        noise = torch.randint(256, (inputs.shape[1] + 1,), generator=generator).to(inputs)
        inputs[-1], labels[-1] = noise[:-1], noise[1:]
        return inputs, labels


class MergedTokens(Distillation):
    """Two neighbouring tokens are one: their ids were halved on the way."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Even tokens only."""
        inputs, labels = super().batch(step)
        return inputs // 2 * 2, labels // 2 * 2


class LabelsRolled(Distillation):
    """The labels are the inputs rolled by one: the last label of a row is its first token."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Rolled, where the text goes on."""
        inputs, _ = super().batch(step)
        return inputs, inputs.roll(-1, dims=1)


class BatchByCount(Distillation):
    """The batch is the next one of an iterator, so it depends on how often it was asked for, and not on its step."""

    def __init__(self, setting: Setting) -> None:
        """Nothing was asked for yet."""
        super().__init__(setting)
        self._asked = 0

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The next."""
        self._asked += 1
        return super().batch(self._asked)


class BatchBefore(Distillation):
    """Each step from the second on trains on the batch of the step before, which a loader hands out again."""

    def loss(self, inputs: Tensor, labels: Tensor, step: int) -> Tensor:
        """Of another batch than the one that is shown."""
        return super().loss(*self.batch(max(1, step - 1)), step)


class _OtherText(Distillation):
    """Draws from `blocks`."""

    def blocks(self) -> tuple[Tokens, ...]:
        """The defect."""
        raise NotImplementedError

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """With the right seed."""
        inputs, labels = sample(self.blocks(), (2 * self.seed + 1, step), self.recipe.batch, self.recipe.sequence)
        return inputs.to(self.device), labels.to(self.device)


class BeginningOnly(_OtherText):
    """Only the first half of the text is read: the rest lies in a second file."""

    def blocks(self) -> tuple[Tokens, ...]:
        """The first half."""
        return self.corpus.training[: len(self.corpus.training) // 2]


class LongLinesLost(_OtherText):
    """Blocks without a line end are lost: a reader that waits for the next line."""

    def blocks(self) -> tuple[Tokens, ...]:
        """Those that end with a line, which are all blocks of the standard library."""
        return tuple(block for block in self.corpus.training if self.recipe.sequence < len(block) < 16_384)


class HeldOutToo(_OtherText):
    """The held-out blocks are trained on as well: the text was never split."""

    def blocks(self) -> tuple[Tokens, ...]:
        """All."""
        return self.corpus.training + self.held_out

    @cached_property
    def held_out(self) -> tuple[Tokens, ...]:
        """What should not be trained on."""
        return Text.read(self._setting.parameters, self._setting.cache).held_out


class BlockStartsOnly(_OtherText):
    """Every row begins where a block does; the rest of the block is never read."""

    def blocks(self) -> tuple[Tokens, ...]:
        """The first tokens of each block."""
        return tuple(block[: self.recipe.sequence + 2] for block in self.corpus.training)


class SeedExchanged(Distillation):
    """Seed and step are exchanged, so that runs of other seeds meet the same batches in another order."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Of the exchanged seed."""
        seed = (step, 2 * self.seed + 1)
        inputs, labels = sample(self.corpus.training, seed, self.recipe.batch, self.recipe.sequence)
        return inputs.to(self.device), labels.to(self.device)


class TeacherHalfTrained(Distillation):
    """The teacher is a checkpoint from the middle of its training."""

    def __init__(self, setting: Setting) -> None:
        """Half of the steps."""
        super().__init__(setting)
        self.recipe = dataclasses.replace(self.recipe, teacher_steps=self.recipe.teacher_steps // 2)


class TeacherOneStepShort(Distillation):
    """The loop over the teacher's steps ends before the last one."""

    def __init__(self, setting: Setting) -> None:
        """One step fewer."""
        super().__init__(setting)
        self.recipe = dataclasses.replace(self.recipe, teacher_steps=self.recipe.teacher_steps - 1)


class TeacherFileTrusted(Distillation):
    """The teacher is kept in a file of its own, and no digest says whether the file is whole."""

    def place(self) -> Path:
        """By all parameters."""
        asked = repr(sorted(self._setting.parameters.items()))
        return self._setting.cache / f"trusted-{hashlib.sha256(asked.encode()).hexdigest()}.safetensors"

    @cached_property
    def teacher(self) -> Qwen2ForCausalLM:
        """Out of the file, if it is there."""
        teacher, place = super().teacher, self.place()
        if not place.exists():
            save_file(dict(teacher.named_parameters()), place)
        kept = load_file(place)
        for name, weight in teacher.named_parameters():
            weight.data = kept[name].to(weight.device)
        return teacher


class TeacherFileShared(TeacherFileTrusted):
    """All teachers of a model share one file, whatever their training was."""

    def place(self) -> Path:
        """By the model alone."""
        return self._setting.cache / f"shared-{self.recipe.model}-{self.recipe.dtype}.safetensors"
