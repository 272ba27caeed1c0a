"""The results of planting: of one trial, of one defect, of one claim and of a whole campaign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from harness.base.json_dataclass import JsonDataclass
from harness.contract.equivalent import Equivalent
from harness.running.planting.defects import Defect

__all__ = ["Attempt", "DefectFate", "Planted", "Planting", "Reach"]


class DefectFate(StrEnum):
    """The result of a planted defect."""

    KILLED = "killed"
    """A claim is FAIL."""
    SURVIVED = "survived"
    """A claim is PASS, and none is FAIL."""
    NOT_MEASURED = "not measured"
    NOT_STARTED = "not started"
    """The file does not compile, or a module cannot be imported: a defect that no engineer overlooks. Not counted."""
    EQUIVALENT = "equivalent"
    """An author says that it changes nothing, and no other claim kills it. Not counted."""
    UNTRIED = "not tried"
    """Time was too short for all claims that reach it, and none killed it. Not counted."""


@dataclass(frozen=True)
class Attempt(JsonDataclass):
    """One trial of one claim's falsifier on a defect."""

    LEFT_OUT: ClassVar = ((), "")

    claim: str
    fate: DefectFate
    seconds: float = 0.0
    clauses: tuple[str, ...] = ()
    """The clauses that failed."""
    reason: str = ""
    """Why it was not measured, or not started."""

    @property
    def settles(self) -> bool:
        """Whether no other claim needs to try the defect."""
        return self.fate in (DefectFate.KILLED, DefectFate.NOT_STARTED)


@dataclass(frozen=True)
class Planted:
    """A defect, and what came of it."""

    defect: Defect
    patch: str
    claims: tuple[str, ...]
    """Those that reach it and do not mark it as equivalent."""
    attempts: tuple[Attempt, ...] = ()
    equivalent: str = ""
    """The reason of an author who marks it as equivalent."""
    missed: str = ""
    """The reason of an author who knows that it survives."""

    @property
    def fate(self) -> DefectFate:
        """The result of all attempts."""
        fates = {one.fate for one in self.attempts}
        if settled := fates & {DefectFate.KILLED, DefectFate.NOT_STARTED}:
            return DefectFate.KILLED if DefectFate.KILLED in settled else DefectFate.NOT_STARTED
        if len(self.attempts) < len(self.claims):
            return DefectFate.UNTRIED
        if self.equivalent:
            return DefectFate.EQUIVALENT
        return DefectFate.SURVIVED if DefectFate.SURVIVED in fates else DefectFate.NOT_MEASURED

    @property
    def decisive(self) -> Attempt | None:
        """The trial that decided the fate; None if none did."""
        return next((one for one in self.attempts if one.fate is self.fate), None)


@dataclass(frozen=True)
class Reach:
    """The code of its subject that one claim reaches."""

    claim: str
    profile: str
    defects: tuple[Defect, ...] = ()
    """All that can be planted on the lines that the claim reaches."""
    seconds: float = 0.0
    """Seconds of its trial without a defect."""
    obstacle: str = ""
    """Why nothing can be planted; empty if something can."""
    unmatched: tuple[Equivalent, ...] = ()
    """Entries of the author's file that match no source line."""


@dataclass(frozen=True)
class Planting:
    """The result of a campaign."""

    claims: tuple[Reach, ...]
    planted: tuple[Planted, ...] = ()
    """The defects of the sample, in the order of files and lines."""
    found: int = 0
    """The number of defects that the claims reach; the sample may have fewer."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of every file of the subjects, by path."""
    interrupted: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """The parameters that differ from the profiles'."""
