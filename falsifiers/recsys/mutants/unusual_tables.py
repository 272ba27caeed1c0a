"""Dynamic embedding tables with one known defect each that only unusual batches, orders and clocks show."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import Tensor

from falsifiers.recsys.reference.dynamic_table import Batch, DynamicTable
from falsifiers.recsys.reference.tables import TritonTables

__all__ = ["FewGradients", "FrequenciesOf7Bits", "StalePlaces", "TimeOfTheHost"]


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
