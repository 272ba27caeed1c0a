"""Dynamic embedding tables whose dumps have one known defect each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.recsys.reference.dynamic_table import DynamicTable
from falsifiers.recsys.reference.tables import TritonTables

__all__ = [
    "CachedNotDumped", "CountsLost", "DumpedKeysOf32Bits", "LoadsOnlyNew", "ScoresOmitted", "SinceAfter",
    "StateOmitted",
]  # fmt: skip


class _Dumped(DynamicTable):
    """Writes and takes other dumps."""

    def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what is written."""
        raise NotImplementedError

    def dumped(self, at_least: int | None = None) -> dict[str, Tensor]:
        """Exchange it."""
        return self.other(super().dumped(at_least))

    def take(self, dumped: Mapping[str, Tensor]) -> None:
        """Take 0 for what is not there."""
        zeros = torch.zeros_like(dumped["values"])
        states = {f"state.{name}": zeros[:, :width] for name, width in self._state.items()}
        super().take({"scores": torch.zeros_like(dumped["keys"]), **states, **dumped})


class StateOmitted(TritonTables):
    """A dump has no optimizer state; a loaded table begins with 0."""

    class kind(_Dumped):  # noqa: N801
        """Leaves it out."""

        def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            """Leave state out."""
            return {name: one for name, one in tensors.items() if not name.startswith("state.")}


class ScoresOmitted(TritonTables):
    """A dump has 0 for every score."""

    class kind(_Dumped):  # noqa: N801
        """Leaves them out."""

        def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            """Clear scores."""
            return {**tensors, "scores": torch.zeros_like(tensors["scores"])}


class DumpedKeysOf32Bits(TritonTables):
    """A dump has the lower 32 bits of keys."""

    class kind(_Dumped):  # noqa: N801
        """Cuts."""

        def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            """Cut keys."""
            return {**tensors, "keys": tensors["keys"].int().long()}


class CountsLost(TritonTables):
    """A dump has no count of updates, so Adam's moments of a loaded table are multiplied as in the first step."""

    class kind(_Dumped):  # noqa: N801
        """Begins anew."""

        def other(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            """Clear updates and lookups."""
            return {**tensors, "counts": tensors["counts"] * torch.tensor([0, 0, 1])}


class SinceAfter(TritonTables):
    """A dump since a score leaves out the keys that have exactly this score."""

    class kind(DynamicTable):  # noqa: N801
        """Takes more than for at least."""

        def dumped(self, at_least: int | None = None) -> dict[str, Tensor]:
            """Ask for one more."""
            return super().dumped(None if at_least is None else at_least + 1)


class CachedNotDumped(TritonTables):
    """A dump has the host's rows, also where the device has newer ones."""

    class kind(DynamicTable):  # noqa: N801
        """Looks at the host only."""

        def dumped(self, at_least: int | None = None) -> dict[str, Tensor]:
            """Empty the cache meanwhile."""
            if self.cache is None:
                return super().dumped(at_least)
            kept, self.cache.digests = self.cache.digests, torch.zeros_like(self.cache.digests)
            tensors = super().dumped(at_least)
            self.cache.digests = kept
            return tensors


class LoadsOnlyNew(TritonTables):
    """Keys that are there already keep what they have when a dump is loaded."""

    class kind(DynamicTable):  # noqa: N801
        """Never overwrites."""

        def take(self, dumped: Mapping[str, Tensor]) -> None:
            """Take the others."""
            new = self.index.find(dumped["keys"]) < 0
            super().take({name: one if name == "counts" else one[new] for name, one in dumped.items()})
