"""The fates of planted defects: a row for each operator and each file, and one JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.contract.builtin import COMPLETES
from harness.running.planting.defects import FAMILIES
from harness.running.planting.results import DefectFate, Planted, Planting, Reach

__all__ = ["FORMAT", "Row", "Summary", "as_json", "survivors", "written"]

FORMAT = 1


@dataclass(frozen=True)
class Row:
    """The numbers of defects by fate: of an operator, in a file, or in all."""

    name: str
    killed: int
    survived: int
    not_measured: int
    not_started: int
    equivalent: int
    untried: int
    crashed: int
    """Of the killed, those whose subject only ended in another way than it should: any test would see them."""

    @property
    def score(self) -> float | None:
        """The share of killed defects among those that count: killed, survived and not measured; None if none counts.

        A defect that was not measured counts, because no claim shows it.
        """
        counted = self.killed + self.survived + self.not_measured
        return self.killed / counted if counted else None


@dataclass(frozen=True)
class Summary:
    """The defects of a campaign, counted."""

    planting: Planting

    @property
    def total(self) -> Row:
        """All defects."""
        return _row("all", self.planting.planted)

    def operators(self) -> Iterator[Row]:
        """A row for every operator that has a defect."""
        for operator in (name for family in FAMILIES.values() for name in family):
            if ones := [one for one in self.planting.planted if one.defect.operator == operator]:
                yield _row(operator, ones)

    def files(self) -> Iterator[Row]:
        """A row for every file that has a defect."""
        for file in sorted({one.defect.file for one in self.planting.planted}):
            yield _row(file, [one for one in self.planting.planted if one.defect.file == file])

    def of(self, fate: DefectFate) -> Iterator[Planted]:
        """The defects with this fate."""
        return (one for one in self.planting.planted if one.fate is fate)


def _row(name: str, ones: Sequence[Planted]) -> Row:
    counts = Counter(one.fate for one in ones)
    decisive = [one.decisive for one in ones if one.fate is DefectFate.KILLED]
    crashed = sum(one is not None and one.clauses == (COMPLETES,) for one in decisive)
    return Row(name, crashed=crashed, **{fate.name.lower(): counts[fate] for fate in DefectFate})


def as_json(summary: Summary, seed: int) -> dict[str, Any]:
    """A campaign as one JSON document, with every defect of the sample and its patch."""
    planting = summary.planting
    return {
        "format": FORMAT,
        "seed": seed,
        "found": planting.found,
        "interrupted": planting.interrupted,
        **({"overrides": dict(planting.overrides)} if planting.overrides else {}),
        "claims": [_claim(one) for one in planting.claims],
        "sources": dict(planting.sources),
        "total": _counts(summary.total),
        "operators": [_counts(row) for row in summary.operators()],
        "files": [_counts(row) for row in summary.files()],
        "defects": [_defect(one) for one in planting.planted],
    }


def written(document: JsonObject) -> str:
    """The document as text, a line a defect, so that a difference between two campaigns is easy to read."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            lines = ",\n".join(f"  {strictjson.dumps(one)}" for one in value)
            parts.append(f"{strictjson.dumps(name)}: [\n{lines}\n]")
        else:
            parts.append(f"{strictjson.dumps(name)}: {strictjson.dumps(value)}")
    return "{{\n{}\n}}\n".format(",\n".join(parts))


def survivors(document: JsonObject) -> frozenset[tuple[str, str, str, str]]:
    """The defects that survived in a document of `as_json`: file, function, lines before and after."""
    return frozenset(
        (one["file"], one["within"], one["before"], one["after"])
        for one in document["defects"]
        if one["fate"] in (DefectFate.SURVIVED, DefectFate.NOT_MEASURED)
    )


def _claim(one: Reach) -> JsonObject:
    return {
        "id": one.claim,
        "profile": one.profile,
        "obstacle": one.obstacle or None,
        "defects": len(one.defects),
        "seconds": one.seconds,
        "unmatched": [vars(entry) for entry in one.unmatched],
    }


def _defect(one: Planted) -> JsonObject:
    defect = one.defect
    return {
        "id": defect.id,
        "operator": defect.operator,
        "file": defect.file,
        "line": defect.line,
        "within": defect.within,
        "before": defect.before,
        "after": defect.after,
        "fate": str(one.fate),
        "equivalent": one.equivalent or None,
        "missed": one.missed or None,
        "claims": list(one.claims),
        "attempts": [attempt.to_json() for attempt in one.attempts],
        "patch": one.patch,
    }


def _counts(row: Row) -> JsonObject:
    return {**vars(row), "score": row.score}
