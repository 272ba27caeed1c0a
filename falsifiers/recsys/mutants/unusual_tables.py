"""Dynamic embedding tables with one known defect each that only unusual batches, orders and clocks show."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from falsifiers.recsys.dynamic_tables import Recipe
from falsifiers.recsys.reference.dynamic_table import Batch, DynamicTable
from falsifiers.recsys.reference.tables import TritonTables

__all__ = [
    "EpsForgotten", "FewGradients", "FrequenciesOf7Bits", "GradientsAsRows", "GroupsOf15Bits", "KeysSideBySide",
    "SeedForgotten", "StalePlaces", "TimeOfTheHost",
]  # fmt: skip


class FewGradients(TritonTables):
    """Only the first 32 gradients of a key are summed."""

    class kind(DynamicTable):  # noqa: N801
        """Sums one piece."""

        def update(self, batch: Batch, gradients: Tensor) -> None:
            """Clear the gradients behind it."""
            of = batch.of
            place = torch.arange(len(of), device=gradients.device) - of.starts[of.groups.long() - 1]
            super().update(batch, gradients.index_fill(0, of.items[place >= 32], 0.0))


class FrequenciesOf7Bits(TritonTables):
    """Frequencies end at 127."""

    class kind(DynamicTable):  # noqa: N801
        """Saturates."""

        def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
            """Count no further."""
            batch = super().touch(keys, score, weights)
            if self.recipe.scoring == "lfu":
                self.index.scores.clamp_(max=127)
            return batch


class GroupsOf15Bits(TritonTables):
    """Of a batch, only the first 32,767 keys in the order of their hash get gradients."""

    class kind(DynamicTable):  # noqa: N801
        """Numbers groups in 16 bits."""

        def update(self, batch: Batch, gradients: Tensor) -> None:
            """Clear those of later groups."""
            super().update(batch, gradients.index_fill(0, batch.of.items[batch.of.groups > 32767], 0.0))


class KeysSideBySide(TritonTables):
    """Keys are read side by side, though there are others between them."""

    class kind(DynamicTable):  # noqa: N801
        """Knows an address and a number."""

        def touch(self, keys: Tensor, score: int | None = None, weights: Tensor | None = None) -> Batch:
            """Forget the stride."""
            return super().touch(keys.as_strided(keys.shape, (1,)), score, weights)


class GradientsAsRows(TritonTables):
    """Gradients are read row by row, though they lie column by column."""

    class kind(DynamicTable):  # noqa: N801
        """Knows an address and a shape."""

        def update(self, batch: Batch, gradients: Tensor) -> None:
            """Forget the strides."""
            super().update(batch, gradients.as_strided(gradients.shape, (gradients.shape[1], 1)))


class _Fixed(TritonTables):
    fixed: ClassVar[Mapping[str, Any]] = {}

    def table(self, recipe: Recipe, device: str) -> DynamicTable:
        """Return an empty table."""
        return self.kind(replace(recipe, **self.fixed), device)


class EpsForgotten(_Fixed):
    """An optimizer divides by the root alone."""

    fixed: ClassVar[Mapping[str, Any]] = {"eps": 0.0}


class SeedForgotten(_Fixed):
    """All tables begin with the same rows."""

    fixed: ClassVar[Mapping[str, Any]] = {"seed": 0}


class StalePlaces(TritonTables):
    """A step writes rows where they were at the lookup, also if they have moved since."""

    class kind(DynamicTable):  # noqa: N801
        """Trusts its places."""

        def update(self, batch: Batch, gradients: Tensor) -> None:
            """Take the batch for the present one."""
            super().update(replace(batch, version=self._version), gradients)


class TimeOfTheHost(TritonTables):
    """A time is what the clock says, though a loaded table may have later ones."""

    class kind(DynamicTable):  # noqa: N801
        """Asks the clock only."""

        def score(self, given: int | None) -> int | None:
            """Forget the last time."""
            return time.time_ns() if self.recipe.scoring == "timestamp" else super().score(given)
