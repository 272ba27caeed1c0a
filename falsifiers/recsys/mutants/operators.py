"""Tables and guards with one known defect each."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from falsifiers.recsys.reference.guarded_operators import GuardedOperators
from falsifiers.recsys.subject import Question, Way

__all__ = [
    "BackwardGuardOnly", "BackwardSwapped", "CastSilently", "ContextualsIgnored", "FallsBack", "ForwardGuardOnly",
    "NarrowEverywhere", "NextGeneration", "ZerosAreContextuals",
]  # fmt: skip


class NextGeneration(GuardedOperators):
    """Compute capability 12 runs what 10 runs."""

    def operator(self, way: Way, capability: int) -> str:
        """Take 12 for 10."""
        return super().operator(way, 10 if capability == 12 else capability)


class FallsBack(GuardedOperators):
    """Where no operator is, it prints so and takes plain torch."""

    def operator(self, way: Way, capability: int) -> str:
        """Raise nothing."""
        try:
            return super().operator(way, capability)
        except ValueError:
            print(f"no operator is for {capability}, fallback to PyTorch")
            return "pytorch_hstu_mha"


class BackwardSwapped(GuardedOperators):
    """The backward pass of Hopper is that of Ampere."""

    def operator(self, way: Way, capability: int) -> str:
        """Take 9 for 8."""
        return super().operator(way, 8 if (way, capability) == ("backward", 9) else capability)


class BackwardGuardOnly(GuardedOperators):
    """A width that is not supported raises in the backward pass only."""

    def guard(self, question: Question, capability: int, way: Way) -> None:
        """Take every width forward."""
        super().guard(_wide(question) if way == "forward" else question, capability, way)


class ForwardGuardOnly(GuardedOperators):
    """A width that is not supported raises in the forward pass only; the backward pass takes another function."""

    def guard(self, question: Question, capability: int, way: Way) -> None:
        """Take every width backward."""
        super().guard(_wide(question) if way == "backward" else question, capability, way)


class NarrowEverywhere(GuardedOperators):
    """Narrow heads are refused on every GPU."""

    def guard(self, question: Question, capability: int, way: Way) -> None:
        """Refuse as on 10."""
        if question.q.shape[2] == 32:
            raise ValueError("heads are 32 wide")
        super().guard(question, capability, way)


class ContextualsIgnored(GuardedOperators):
    """Where contextual rows are not supported, they are taken as history."""

    def forward(self, question: Question, capability: int) -> Tensor:
        """Leave them out."""
        return super().forward(_without(question, capability), capability)

    def backward(self, question: Question, capability: int) -> tuple[Tensor, Tensor, Tensor]:
        """Leave them out."""
        return super().backward(_without(question, capability), capability)


class ZerosAreContextuals(GuardedOperators):
    """A count of no contextual rows is taken for one of each sequence."""

    def forward(self, question: Question, capability: int) -> Tensor:
        """Count one."""
        contextuals = question.num_contextuals
        if contextuals is not None and not bool(contextuals.any()) and capability != 10:
            question = dataclasses.replace(question, num_contextuals=contextuals + 1)
        return super().forward(question, capability)


class CastSilently(GuardedOperators):
    """Other dtypes are rounded to bfloat16."""

    def forward(self, question: Question, capability: int) -> Tensor:
        """Round forward."""
        return super().forward(_rounded(question), capability).to(question.q.dtype)

    def backward(self, question: Question, capability: int) -> tuple[Tensor, Tensor, Tensor]:
        """Round backward."""
        return super().backward(_rounded(question), capability)


def _wide(question: Question) -> Question:
    """Return the question with heads that every guard passes."""
    return dataclasses.replace(question, q=question.q.new_empty(0, 1, 64))


def _without(question: Question, capability: int) -> Question:
    return dataclasses.replace(question, num_contextuals=None) if capability == 10 else question


def _rounded(question: Question) -> Question:
    if question.q.dtype in (torch.bfloat16, torch.float16):
        return question
    names = ("q", "k", "v", "above")
    return dataclasses.replace(question, **{name: getattr(question, name).bfloat16() for name in names})
