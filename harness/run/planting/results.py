"""What came of planted defects: one, and all of one claim's subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from harness.contract.equivalent import Equivalent
from harness.run.planting.defects import Defect

__all__ = ["DefectFate", "Planted", "Planting"]


class DefectFate(StrEnum):
    """What came of a planted defect."""

    KILLED = "killed"
    """The claim is FAIL."""
    SURVIVED = "survived"
    """The claim is PASS."""
    NOT_MEASURED = "not measured"
    NOT_STARTED = "not started"
    """The file does not compile, or a module cannot be imported: a defect that no engineer overlooks. Not counted."""


@dataclass(frozen=True)
class Planted:
    """A defect that was tried."""

    defect: Defect
    patch: str
    fate: DefectFate
    clauses: tuple[str, ...] = ()
    """Those that failed."""
    reason: str = ""
    """Why it was not measured, or not started."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Planting:
    """What came of the defects in the subject of one claim."""

    claim: str
    profile: str
    defects: tuple[Defect, ...] = ()
    """All that can be planted on the lines that the claim reaches."""
    planted: tuple[Planted, ...] = ()
    """Those that were tried, now or before."""
    equivalent: Mapping[str, str] = field(default_factory=dict)
    """The author's reasons, by the ids of the defects that they mark as equivalent. These are not tried."""
    unmatched: tuple[Equivalent, ...] = ()
    """Entries of the author's file that name no defect."""
    elsewhere: frozenset[str] = frozenset()
    """The ids of those that another claim has settled. These are not tried."""
    obstacle: str = ""
    """Why nothing can be planted; empty if something can."""
    interrupted: bool = False

    @property
    def untried(self) -> tuple[Defect, ...]:
        """Those that time was too short for."""
        tried = {one.defect.id for one in self.planted}
        return tuple(
            one
            for one in self.defects
            if one.id not in tried and one.id not in self.equivalent and one.id not in self.elsewhere
        )
