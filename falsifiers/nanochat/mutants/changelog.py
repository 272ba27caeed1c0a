"""Published figures with one known change each, which the comparison must see."""

from __future__ import annotations

from typing import Any

from falsifiers.nanochat.reference.changelog import PublishedFigures

__all__ = ["RoundedSpeedup", "SplitWithoutForward", "SwappedRows", "WrongGain"]


class SwappedRows(PublishedFigures):
    """Two rows of the table are exchanged."""

    def figures(self) -> dict[str, Any]:
        """Give each of the two the other's rate."""
        said = super().figures()
        rates = said["tokens_per_second"]
        return said | {"tokens_per_second": rates | {"liger": rates["triton"], "triton": rates["liger"]}}


class RoundedSpeedup(PublishedFigures):
    """1.17 becomes 1.2."""

    def figures(self) -> dict[str, Any]:
        """Round it."""
        said = super().figures()
        return said | {"speedups": said["speedups"] | {"triton": 1.2}}


class WrongGain(PublishedFigures):
    """A gain is taken from another row."""

    def figures(self) -> dict[str, Any]:
        """Repeat the first one."""
        said = super().figures()
        first, _, last = said["gemm_gains"]
        return said | {"gemm_gains": [first, first, last]}


class SplitWithoutForward(PublishedFigures):
    """A part of the step is missing."""

    def figures(self) -> dict[str, Any]:
        """Leave the forward pass out."""
        said = super().figures()
        data, _, backward = said["split_percent"]
        return said | {"split_percent": [data, backward]}
