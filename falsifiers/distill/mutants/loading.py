"""Subjects that load other weights than the file holds: one known defect each, and the real bug that it replays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.state import read_state

__all__ = [
    "CutVocabularyOnLoad",
    "DowncastOnLoad",
    "EvaluatesInTraining",
    "LenientLoad",
    "LoadsNothing",
    "SwappedOnLoad",
    "TransposedOnLoad",
    "UntiedOnLoad",
]

_EMBEDDING = "model.embed_tokens.weight"
_LAYER = "model.layers.0.self_attn"


class _Loader(Distillation):
    """Loads what `altered` makes of the file's weights, and leaves the rest as it is, as a lenient loader does."""

    def altered(self, weights: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """The defect."""
        raise NotImplementedError

    @torch.no_grad()
    def load(self, path: Path) -> None:
        """Copy every tensor that fits, and ignore the others."""
        live = self.student_weights()
        for name, weight in self.altered(read_state(path).weights).items():
            live[name][: len(weight)].copy_(weight)


class CutVocabularyOnLoad(_Loader):
    """The embedding's last rows keep their first values (#1877: 152,064 rows cut to 151,936)."""

    def altered(self, weights: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """All rows but the last eight."""
        return {**weights, _EMBEDDING: weights[_EMBEDDING][:-8]}


class TransposedOnLoad(_Loader):
    """A square projection is read with rows for columns: its shape is right."""

    def altered(self, weights: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """Transpose it."""
        name = f"{_LAYER}.o_proj.weight"
        return {**weights, name: weights[name].T}


class DowncastOnLoad(_Loader):
    """Weights pass through bfloat16 on their way; names, shapes and dtype are right."""

    def altered(self, weights: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """Round all of them."""
        return {name: weight.bfloat16().to(weight.dtype) for name, weight in weights.items()}


class SwappedOnLoad(_Loader):
    """Keys and values, of one shape, change places in a table of names."""

    def altered(self, weights: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """Exchange them."""
        key, value = f"{_LAYER}.k_proj.weight", f"{_LAYER}.v_proj.weight"
        return {**weights, key: weights[value], value: weights[key]}


class LenientLoad(_Loader):
    """A tensor that the loader does not know by that name is passed over, and its place keeps its first values."""

    def altered(self, weights: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """All but one, a vector of ones at first: what it was trained to is lost."""
        return {name: weight for name, weight in weights.items() if name != "model.norm.weight"}


class LoadsNothing(_Loader):
    """Every name has a prefix more than the loader expects: it warns, and loads nothing."""

    def altered(self, weights: dict[str, Tensor]) -> Mapping[str, Tensor]:
        """None."""
        return {}


class UntiedOnLoad(Distillation):
    """Loading puts a new embedding in the place of the one that the output head shares: the head keeps the old."""

    def load(self, path: Path) -> None:
        """Load, then give the head its old weights back."""
        before = self.student.lm_head.weight.detach().clone()
        super().load(path)
        self.student.lm_head.weight = torch.nn.Parameter(before)

    def student_weights(self) -> dict[str, Tensor]:
        """The weights by which it is saved, among which the head is not."""
        return {name: weight for name, weight in super().student_weights().items() if name != "lm_head.weight"}


class EvaluatesInTraining(Distillation):
    """Dropout stays on when the student answers, so that it is a new function every time."""

    @torch.no_grad()
    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Answer as in training."""
        return self._logits(tokens, weights)
