"""Ranks that did not make one step together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from falsifiers.param_decomp.reference.trainer import Decomposition

__all__ = [
    "CheckpointedBlockKept", "ClippedOnOneRank", "ContextScaledTwice", "EveryRankTheSameRows", "LastRankNeverSynced",
    "OneWeightKept", "OutputNormKept", "RanksShuffleApart", "UnusedSwitchesOff", "WrapperBypassed",
]  # fmt: skip


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


class _Kept(Decomposition):
    """Gradients of some weights stay those of the rank."""

    def kept(self) -> Mapping[str, Tensor]:
        """The defect: which weights."""
        raise NotImplementedError

    def average_gradients(self) -> None:
        """Average, and put the rank's own back."""
        own = {name: one.grad.clone() for name, one in self.kept().items() if one.grad is not None}
        super().average_gradients()
        for name, one in self.kept().items():
            one.grad = own.get(name)

    def _named(self, part: str) -> Mapping[str, Tensor]:
        return {name: one for name, one in self.importance_weights().items() if part in name}


class WrapperBypassed(_Kept):
    """The loss runs through the wrapped module, whose gradients nothing reduces."""

    def kept(self) -> Mapping[str, Tensor]:
        """All."""
        return {**self.components(), **self.importance_weights()}


class OutputNormKept(_Kept):
    """The last layer's small weight is on every rank, and its gradient is not reduced."""

    def kept(self) -> Mapping[str, Tensor]:
        """The output's bias."""
        return self._named("output.bias")


class OneWeightKept(_Kept):
    """A weight that all ranks share has a gradient of partial sums, reduced only with another option."""

    def kept(self) -> Mapping[str, Tensor]:
        """One projection."""
        return self._named("blocks.0.o.weight")


class UnusedSwitchesOff(_Kept):
    """A module that no forward uses keeps the reduction of the others from being made."""

    def kept(self) -> Mapping[str, Tensor]:
        """The components."""
        return self.components()


class CheckpointedBlockKept(_Kept):
    """The gradients of a block that is computed again in the backward pass are not reduced."""

    def kept(self) -> Mapping[str, Tensor]:
        """The first block."""
        return self._named("blocks.0.")


class LastRankNeverSynced(_Kept):
    """The last rank of the pipeline leaves its loop before its gradients are reduced."""

    def kept(self) -> Mapping[str, Tensor]:
        """All of the last rank."""
        return {**self.components(), **self.importance_weights()} if 0 < _rank() == _ranks() - 1 else {}


class ContextScaledTwice(Decomposition):
    """The loss is multiplied by the ranks of a group, and gradients are divided by another group's."""

    def averaged(self, gradient: Tensor) -> Tensor:
        """Times the ranks."""
        found = super().averaged(gradient)
        return found if gradient.dim() == 0 else found * _ranks()


class EveryRankTheSameRows(Decomposition):
    """A stream is not split over ranks: all of them train on the same rows."""

    @property
    def rows(self) -> range:
        """The first ones."""
        return range(len(super().rows))


class RanksShuffleApart(Decomposition):
    """Each rank shuffles with a seed of its own before it takes its share: rows come twice, and others never."""

    def batch(self, step: int) -> Tensor:
        """Of another order on other ranks."""
        if _rank() == 0:
            return super().batch(step)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        shape = (self.config.batch, self.config.sequence)
        tokens = torch.randint(self.config.vocabulary, shape, generator=generator)
        order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(_rank() + step))
        return tokens[order][self.rows.start : self.rows.stop].to(self.device)


class ClippedOnOneRank(Decomposition):
    """Gradients are clipped on the first rank alone, so that replicas drift apart."""

    def update(self, step: int) -> Mapping[str, Tensor]:
        """With no limit on the other ranks."""
        if _rank() > 0:
            self.config = dataclasses.replace(self.config, gradient_norm=math.inf)
        return super().update(step)
