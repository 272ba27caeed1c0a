"""Analyses of a bound, and settings of the allocator, with one known defect each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from falsifiers.nanochat.reference.allocator import GrowingSegments
from falsifiers.nanochat.reference.analysis import Ridge

__all__ = ["AfterTheFirstTensor", "AlwaysCompute", "AlwaysMemory", "MisspeltName", "NeverSet"]


class AlwaysMemory(Ridge):
    """The last line of the script, which no measurement reaches."""

    def bound(
        self, operations: float, moved: float, peak_operations: float, peak_bytes: float
    ) -> Literal["memory", "compute"]:
        """Say what the script always says."""
        return "memory"


class AlwaysCompute(Ridge):
    """The other constant."""

    def bound(
        self, operations: float, moved: float, peak_operations: float, peak_bytes: float
    ) -> Literal["memory", "compute"]:
        """Say the opposite of it."""
        return "compute"


class MisspeltName(GrowingSegments):
    """A letter is missing in the variable's name, and nothing says so."""

    def environment(self) -> Mapping[str, str]:
        """Set a variable that nothing reads."""
        return {"PYTORCH_ALOC_CONF": "expandable_segments:True"}


class AfterTheFirstTensor(GrowingSegments):
    """The variable is set after the allocator has read it."""

    def environment(self) -> Mapping[str, str]:
        """Set nothing before the process begins."""
        return {}

    def late(self) -> Mapping[str, str]:
        """Set it later."""
        return super().environment()


class NeverSet(GrowingSegments):
    """The setting is written down and never set."""

    def environment(self) -> Mapping[str, str]:
        """Set nothing."""
        return {}
