"""The results of planting: of one trial, one defect, one claim and a whole campaign, counted and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar

from harness.base import strictjson
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.contract.model import COMPLETES
from harness.tools.planting.defects import OPERATORS, Defect
from harness.tools.planting.equivalent import Equivalent

__all__ = ["Attempt", "DefectFate", "Planted", "Planting", "Reach", "Row", "as_json", "survivors", "written"]


class DefectFate(StrEnum):
    """The result of a planted defect."""

    KILLED = "killed"
    """A claim is FAIL."""
    SURVIVED = "survived"
    """A claim is PASS, and none is FAIL."""
    NOT_MEASURED = "not measured"
    NOT_STARTED = "not started"
    """The file does not compile, or a module cannot be imported, which every engineer notices. Not counted."""
    EQUIVALENT = "equivalent"
    """An author says that it changes nothing, and no other claim kills it. Not counted."""
    UNTRIED = "not tried"
    """The time ended before all claims that reach it had tried it, and none killed it. Not counted."""


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
        """Whether the attempt decides the fate, so that no other claim tries the defect."""
        return self.fate in (DefectFate.KILLED, DefectFate.NOT_STARTED)


@dataclass(frozen=True)
class Planted:
    """A defect with its attempts."""

    defect: Defect
    patch: str
    claims: tuple[str, ...]
    """The claims that reach the defect and do not mark it as equivalent."""
    attempts: tuple[Attempt, ...] = ()
    equivalent: str = ""
    """The reason of an author who marks it as equivalent."""
    missed: str = ""
    """The reason of an author who knows that it survives."""

    @property
    def fate(self) -> DefectFate:
        """The result of all attempts."""
        fates = {attempt.fate for attempt in self.attempts}
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
        return next((attempt for attempt in self.attempts if attempt.fate is self.fate), None)


@dataclass(frozen=True)
class Reach:
    """The code of its subject that one claim reaches."""

    claim: str
    profile: str
    defects: tuple[Defect, ...] = ()
    """All defects on the lines that the claim reaches."""
    seconds: float = 0.0
    """Seconds of its trial without a defect."""
    obstacle: str = ""
    """Why nothing can be planted; empty if something can."""
    unmatched: tuple[Equivalent, ...] = ()
    """Entries of the author's file that match no source line."""

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of the defects."""
        return frozenset(defect.id for defect in self.defects)


@dataclass(frozen=True)
class Row:
    """The number of defects by fate: of one operator, of one file, or in total."""

    name: str
    killed: int
    survived: int
    not_measured: int
    not_started: int
    equivalent: int
    untried: int
    crashed: int
    """The number of killed defects that only made the subject raise, crash or hang. Any test detects these."""

    @property
    def score(self) -> float | None:
        """The share of killed defects among the counted ones: killed, survived and not measured; None without any.

        Unmeasured defects count, because no claim has detected them.
        """
        counted = self.killed + self.survived + self.not_measured
        return self.killed / counted if counted else None


@dataclass(frozen=True)
class Planting:
    """The result of a campaign."""

    claims: tuple[Reach, ...]
    planted: tuple[Planted, ...] = ()
    """The defects of the sample, in the order of files and lines."""
    found: int = 0
    """The number of defects that the claims reach; the sample may have fewer."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of every file in which defects were sought, by path."""
    interrupted: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """The parameters that differ from the profiles'."""
    beyond: tuple[str, ...] = ()
    """The ids of the user's patches in files that no claim reaches."""

    @property
    def total(self) -> Row:
        """All defects, counted."""
        return _row("all", self.planted)

    def operators(self) -> Iterator[Row]:
        """A row for every operator that has a defect, and for every kind of a user's patches."""
        others = {planted.defect.operator for planted in self.planted}.difference(OPERATORS)
        for operator in (*OPERATORS, *sorted(others)):
            if ones := [planted for planted in self.planted if planted.defect.operator == operator]:
                yield _row(operator, ones)

    def files(self) -> Iterator[Row]:
        """A row for every file that has a defect."""
        for file in sorted({planted.defect.file for planted in self.planted}):
            yield _row(file, [planted for planted in self.planted if planted.defect.file == file])

    def of(self, fate: DefectFate) -> Iterator[Planted]:
        """The defects with this fate."""
        return (planted for planted in self.planted if planted.fate is fate)


def _row(name: str, ones: Sequence[Planted]) -> Row:
    counts = Counter(planted.fate for planted in ones)
    decisive = [planted.decisive for planted in ones if planted.fate is DefectFate.KILLED]
    crashed = sum(attempt is not None and attempt.clauses == (COMPLETES,) for attempt in decisive)
    return Row(name, crashed=crashed, **{fate.name.lower(): counts[fate] for fate in DefectFate})


def as_json(planting: Planting, seed: int) -> dict[str, Any]:
    """A campaign as one JSON document, with every defect of the sample and its patch."""
    return {
        "format": 1,
        "seed": seed,
        "found": planting.found,
        "interrupted": planting.interrupted,
        **({"overrides": dict(planting.overrides)} if planting.overrides else {}),
        "claims": [_claim(claim) for claim in planting.claims],
        "sources": dict(planting.sources),
        "total": _counts(planting.total),
        "operators": [_counts(row) for row in planting.operators()],
        "files": [_counts(row) for row in planting.files()],
        "defects": [_defect(planted) for planted in planting.planted],
    }


def written(document: JsonObject) -> str:
    """The document as text, one line for each defect, so that a diff of two campaigns is easy to read."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            lines = ",\n".join(f"  {strictjson.dumps(item)}" for item in value)
            parts.append(f"{strictjson.dumps(name)}: [\n{lines}\n]")
        else:
            parts.append(f"{strictjson.dumps(name)}: {strictjson.dumps(value)}")
    return "{{\n{}\n}}\n".format(",\n".join(parts))


def survivors(document: JsonObject) -> frozenset[tuple[str, str, str, str]]:
    """The defects that survived in a document of `as_json`: file, function, lines before and after."""
    return frozenset(
        (defect["file"], defect["within"], defect["before"], defect["after"])
        for defect in document["defects"]
        if defect["fate"] in (DefectFate.SURVIVED, DefectFate.NOT_MEASURED)
    )


def _claim(reach: Reach) -> JsonObject:
    return {
        "id": reach.claim,
        "profile": reach.profile,
        "obstacle": reach.obstacle or None,
        "defects": len(reach.defects),
        "seconds": reach.seconds,
        "unmatched": [vars(entry) for entry in reach.unmatched],
    }


def _defect(planted: Planted) -> JsonObject:
    defect = planted.defect
    return {
        "id": defect.id,
        "operator": defect.operator,
        "file": defect.file,
        "line": defect.line,
        "within": defect.within,
        "before": defect.before,
        "after": defect.after,
        "fate": str(planted.fate),
        "equivalent": planted.equivalent or None,
        "missed": planted.missed or None,
        "claims": list(planted.claims),
        "attempts": [attempt.to_json() for attempt in planted.attempts],
        "patch": planted.patch,
    }


def _counts(row: Row) -> JsonObject:
    return {**vars(row), "score": row.score}
