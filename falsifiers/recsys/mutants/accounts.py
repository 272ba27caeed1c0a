"""Accounts with one known defect each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from falsifiers.recsys.reference.accounts import Accounting

__all__ = [
    "CasesAreLiteral", "FirstPartDecides", "ForwardOnly", "SparsePeak", "SquareCounted", "TargetsForgotten", "WorldSum",
]  # fmt: skip


class SquareCounted(Accounting):
    """The whole square of the history is counted, causal or not."""

    def attention(
        self, heads: int, width: int, counts: Sequence[Mapping[str, int]], *, causal: bool, backward: bool
    ) -> float:
        """Count as if nothing were causal."""
        return super().attention(heads, width, counts, causal=False, backward=backward)


class ForwardOnly(Accounting):
    """The backward pass is not counted."""

    def attention(
        self, heads: int, width: int, counts: Sequence[Mapping[str, int]], *, causal: bool, backward: bool
    ) -> float:
        """Count the forward pass."""
        return super().attention(heads, width, counts, causal=causal, backward=False)


class TargetsForgotten(Accounting):
    """Targets are taken as history."""

    def attention(
        self, heads: int, width: int, counts: Sequence[Mapping[str, int]], *, causal: bool, backward: bool
    ) -> float:
        """Count no targets."""
        counts = [{**one, "targets": 0} for one in counts]
        return super().attention(heads, width, counts, causal=causal, backward=backward)


class WorldSum(Accounting):
    """The sum is over all ranks, so a batch counts once for each rank of its tensor-parallel group."""

    def of_all_ranks(self, of_each: Sequence[float], tensor_parallel: int) -> float:
        """Sum everything."""
        return sum(of_each)


class FirstPartDecides(Accounting):
    """The first known part of a name decides, and B200 comes before GB200."""

    def peak(self, name: str) -> float:
        """Look for B200 first."""
        return 2250.0 if "B200" in name.upper() else super().peak(name)


class CasesAreLiteral(Accounting):
    """A name in small letters is another GPU's."""

    def peak(self, name: str) -> float:
        """Take what is not known for an A100."""
        return super().peak(name) if name != name.lower() else super().peak("A100")


class SparsePeak(Accounting):
    """The peak is that of sparse products."""

    def peak(self, name: str) -> float:
        """Double it."""
        return 2.0 * super().peak(name)
