"""What came of the planted defects of several claims, a row an operator. A defect counts once, by its best fate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.base.strictjson import JsonObject
from harness.run.planting.defects import FAMILIES, Defect
from harness.run.planting.results import DefectFate, Planted, Planting

__all__ = ["Row", "Summary", "as_json"]

_EQUIVALENT, _UNTRIED = "equivalent", "not tried"
_RANK = (DefectFate.KILLED, DefectFate.SURVIVED, DefectFate.NOT_MEASURED, DefectFate.NOT_STARTED, _EQUIVALENT, _UNTRIED)
"""A defect that one claim kills is killed, whatever the others say of it."""


@dataclass(frozen=True)
class Row:
    """How many defects of an operator, or of all, came to what."""

    family: str
    operator: str
    killed: int
    survived: int
    not_measured: int
    not_started: int
    equivalent: int
    untried: int

    @property
    def score(self) -> float | None:
        """The share of killed defects among those that count: killed, survived and not measured; None if none counts.

        A defect that was not measured counts, because the claim does not show it.
        """
        counted = self.killed + self.survived + self.not_measured
        return self.killed / counted if counted else None


class Summary:
    """The defects of several claims, each once."""

    def __init__(self, plantings: Sequence[Planting]) -> None:
        self.plantings = plantings
        self._defects: dict[str, Defect] = {one.id: one for planting in plantings for one in planting.defects}
        self._fates: dict[str, str] = {}
        for name, fate in _fates(plantings):
            if name not in self._fates or _RANK.index(fate) < _RANK.index(self._fates[name]):
                self._fates[name] = fate

    @property
    def total(self) -> Row:
        """All defects."""
        return self._row("", "all", self._fates)

    def rows(self) -> Iterator[Row]:
        """A row for every operator that has a defect."""
        for family, operators in FAMILIES.items():
            for operator in operators:
                names = [name for name in self._fates if self._defects[name].operator == operator]
                if names:
                    yield self._row(family, operator, names)

    def fate(self, defect: Defect) -> str:
        """What came of a defect: a `DefectFate`, "equivalent" or "not tried"."""
        return self._fates[defect.id]

    def of(self, fate: DefectFate) -> Iterator[Planted]:
        """The trials that decided this fate of a defect, one a defect."""
        seen: set[str] = set()
        for planting in self.plantings:
            for one in planting.planted:
                if one.fate is fate and self._fates[one.defect.id] == fate and one.defect.id not in seen:
                    seen.add(one.defect.id)
                    yield one

    def _row(self, family: str, operator: str, names: Iterable[str]) -> Row:
        counts = Counter(self._fates[name] for name in names)
        return Row(family, operator, *(counts[fate] for fate in _RANK))


def _fates(plantings: Sequence[Planting]) -> Iterator[tuple[str, str]]:
    for planting in plantings:
        yield from ((one.defect.id, one.fate) for one in planting.planted)
        yield from ((name, _EQUIVALENT) for name in planting.equivalent)
        yield from ((one.id, _UNTRIED) for one in planting.untried)


def as_json(summary: Summary) -> dict[str, Any]:
    """The same as one JSON document, with every defect that was tried and its patch."""
    total = summary.total
    return {
        "claims": [
            {
                "id": planting.claim,
                "profile": planting.profile,
                "obstacle": planting.obstacle or None,
                "interrupted": planting.interrupted,
                "defects": len(planting.defects),
                "equivalent": dict(planting.equivalent),
                "unmatched": [vars(entry) for entry in planting.unmatched],
                "untried": [one.id for one in planting.untried],
                "tried": [_trial(one) for one in planting.planted],
            }
            for planting in summary.plantings
        ],
        "operators": [_counts(row) for row in summary.rows()],
        "total": _counts(total),
    }


def _trial(one: Planted) -> JsonObject:
    return {
        "id": one.defect.id,
        "operator": one.defect.operator,
        "file": one.defect.file,
        "within": one.defect.within,
        "before": one.defect.before,
        "after": one.defect.after,
        "fate": str(one.fate),
        "clauses": list(one.clauses),
        "reason": one.reason or None,
        "seconds": round(one.seconds, 3),
        "patch": one.patch,
    }


def _counts(row: Row) -> JsonObject:
    return {**vars(row), "score": row.score}
