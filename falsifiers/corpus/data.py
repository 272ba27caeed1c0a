"""Batches that were not those of the data set."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from falsifiers.distill.reference.trainer import Distillation
from falsifiers.distill.text import corpus as text

__all__ = [
    "BeginningTwice", "EpochsInOneOrder", "EvaluationInTraining", "FilterForgotten", "FirstBatchesAfterResume",
    "OtherTokenizer", "PositionInMicroBatches", "ShardsFromStart", "StreamForEachWorker", "UnlearnableBatch",
    "WorkersWithOneSeed",
]  # fmt: skip

_WORKERS = 4

Batch = tuple[Tensor, Tensor]


class WorkersWithOneSeed(Distillation):
    """Each worker draws its part of the batch with the same random numbers."""

    def batch(self, step: int) -> Batch:
        """The first worker's rows, once for each worker."""
        inputs, labels = super().batch(step)
        if len(inputs) < _WORKERS:
            return inputs, labels
        rows = torch.arange(len(inputs), device=inputs.device) % (len(inputs) // _WORKERS)
        return inputs[rows], labels[rows]


class StreamForEachWorker(Distillation):
    """Each worker yields the whole stream, so that every batch comes as often as there are workers."""

    def batch(self, step: int) -> Batch:
        """The same for several steps."""
        return super().batch((step - 1) // _WORKERS + 1)


class EpochsInOneOrder(Distillation):
    """The sampler is never told the epoch: every epoch has the order of the first."""

    epoch = 40

    def batch(self, step: int) -> Batch:
        """That of the first epoch."""
        return super().batch((step - 1) % self.epoch + 1)


class _Resumed(Distillation):
    """Something goes wrong with the position in the data when a run is resumed."""

    resumed_at = 0

    def resume(self) -> int:
        """Remember where."""
        self.resumed_at = super().resume()
        return self.resumed_at

    def batch(self, step: int) -> Batch:
        """That of another position after a resume."""
        is_later = self.resumed_at and step > self.resumed_at
        return super().batch(self.position(step) if is_later else step)

    def position(self, step: int) -> int:
        """The defect."""
        raise NotImplementedError


class ShardsFromStart(_Resumed):
    """A checkpoint has no position in the data: the resumed run begins with the first shard."""

    def position(self, step: int) -> int:
        """Counted from the resume."""
        return step - self.resumed_at


class PositionInMicroBatches(_Resumed):
    """The position of a resumed run ignores accumulation: it goes back by half of the steps."""

    def position(self, step: int) -> int:
        """Half of what was done is done again."""
        return step - self.resumed_at // 2


class FirstBatchesAfterResume(_Resumed):
    """Workers have fetched ahead from the beginning before the position is restored."""

    def position(self, step: int) -> int:
        """The first two batches come again."""
        ahead = step - self.resumed_at
        return ahead if ahead <= 2 else step


class _OtherText(Distillation):
    """Another text to train on."""

    @cached_property
    def corpus(self) -> text.Corpus:
        """The other text, stated as the right one."""
        right = super().corpus
        return text.Corpus(self.other(right.training), right.digest)

    def other(self, training: tuple[text.Tokens, ...]) -> tuple[text.Tokens, ...]:
        """The defect."""
        raise NotImplementedError

    def held_out(self) -> list[text.Tokens]:
        """The blocks that are held out, as bytes."""
        blocks = text.blocks_of(text._text(self._setting.parameters.get("corpus")))
        return [np.frombuffer(one, np.uint8) for number, one in enumerate(blocks, start=1) if number % 10 == 0]


class EvaluationInTraining(_OtherText):
    """A default makes four of five evaluation documents training documents, too."""

    def other(self, training: tuple[text.Tokens, ...]) -> tuple[text.Tokens, ...]:
        """With four fifths of what is held out."""
        held = self.held_out()
        return (*training, *held[: len(held) * 4 // 5])


class FilterForgotten(_OtherText):
    """A filter removes evaluation text from the training text, and has a bug: some of it stays."""

    def other(self, training: tuple[text.Tokens, ...]) -> tuple[text.Tokens, ...]:
        """With every tenth of what is held out."""
        return (*training, *self.held_out()[::10])


class OtherTokenizer(_OtherText):
    """The ids are those of another tokenizer with as many tokens."""

    def other(self, training: tuple[text.Tokens, ...]) -> tuple[text.Tokens, ...]:
        """Each id moved by the special tokens of the other one."""
        return tuple(((one.astype(np.int64) + 3) % 256).astype(one.dtype) for one in training)


class BeginningTwice(Distillation):
    """The template begins with the token of the beginning, and the tokenizer adds it again."""

    def batch(self, step: int) -> Batch:
        """The first token of each row twice."""
        inputs, labels = super().batch(step)
        row = torch.cat([inputs[:, :1], inputs, labels[:, -1:]], dim=1)[:, :-1]
        return row[:, :-1], row[:, 1:]


class UnlearnableBatch(Distillation):
    """One input has many labels: every row asks for another answer to the same text."""

    def batch(self, step: int) -> Batch:
        """The inputs of the first row, the labels of each."""
        inputs, labels = super().batch(step)
        return inputs[:1].expand_as(inputs).clone(), labels
