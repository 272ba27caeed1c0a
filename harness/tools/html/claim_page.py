"""A claim as a page: its status, its runs, and the trend of every number that its clauses read, with the bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from harness.contract.bound import RULE
from harness.contract.keywords import is_number
from harness.judging.record import Record
from harness.tools.html import charts
from harness.tools.html.charts import SIGNS, is_finite_number
from harness.tools.html.clause_rows import ClauseGroup, Row
from harness.tools.html.index_page import ListedBundle, Matrix
from harness.tools.html.index_page import Row as ClaimRow
from harness.tools.html.plot import Figure, Form, Line, drawn
from harness.tools.html.templating import page

__all__ = ["measurements_of", "numbers", "render", "trends"]

_MOST_NUMBERS: Final = 80
_MOST_RUNS: Final = 400


def render(name: str, row: ClaimRow, matrix: Matrix, entries: Sequence[ListedBundle]) -> str:
    """Return the page of a claim.

    Args:
        name: of the project; empty without one.
        entries: the claim's bundles.
    """
    newest = sorted(entries, key=lambda entry: (entry.started, entry.page), reverse=True)
    accepted = [bundle for bundle in newest if bundle.verification.accepted]
    return page(
        "claim.html.j2",
        name=name,
        row=row,
        claim=row.claim or next((bundle.claim for bundle in accepted), ""),
        fields=[
            (device, other.subject, field)
            for other in matrix.rows
            if other.id == row.id
            for device, field in zip(matrix.devices, other.fields, strict=True)
            if field
        ],
        meaning=dict(matrix.legend).get(row.word, ""),
        entries=newest,
        trends=[(series, len(runs), drawn(trends(runs))) for series, runs in _series(accepted)],
    )


def numbers(record: Record, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return every number that a clause reads, with its unit and its bounds by sign, as JSON values.

    A measurement has its name in the contract. A rule that compares has its own name, its ratio, and the bound 1.
    """
    by_name: dict[str, dict[str, Any]] = {
        name: {"value": value, "unit": unit, "bounds": {}} for name, (value, unit) in measurements_of(record).items()
    }
    for clause in record.clauses:
        sign = "" if clause.bound is None else SIGNS.get(clause.bound.keyword, "")
        for name in {clause.id, clause.id.rpartition(".")[0]} & by_name.keys():
            if sign and clause.bound and is_finite_number(clause.bound.limit):
                by_name[name]["bounds"][sign] = float(clause.bound.limit)
    for row in rows:
        if row.nature is ClauseGroup.FORM:  # a bound that only forbids a sign is no result
            by_name.pop(row.id, None)
            by_name.get(row.id.rpartition(".")[0], {"bounds": {}})["bounds"].pop("≥", None)
        if row.nature is ClauseGroup.RULE and row.ratio is not None and math.isfinite(row.ratio):
            by_name[row.id] = {"value": row.ratio, "unit": "", "bounds": {"≤": 1.0}}
    return dict(list(by_name.items())[:_MOST_NUMBERS])


def _series(entries: Sequence[ListedBundle]) -> Iterator[tuple[str, list[ListedBundle]]]:
    """Yield the runs that can be compared, with what they have in common; in each series the oldest first."""
    grouped: dict[str, list[ListedBundle]] = {}
    for entry in entries:
        grouped.setdefault(entry.series, []).append(entry)
    for series, runs in grouped.items():
        yield series, runs[:_MOST_RUNS][::-1]


def trends(runs: Sequence[ListedBundle]) -> Iterator[Figure]:
    """Yield a figure for each number of these runs, those with bounds first. Gaps are runs that lack it."""
    known = {name: one for run in runs for name, one in run.numbers.items()}
    places = range(1, len(runs) + 1)
    for name in sorted(known, key=lambda name: not known[name]["bounds"]):
        values = [run.numbers.get(name, {"value": None, "bounds": {}}) for run in runs]
        lines = [Line(name, places, [value["value"] for value in values])]
        for sign in dict.fromkeys(sign for value in values for sign in value["bounds"]):
            bounds = [value["bounds"].get(sign) for value in values]
            lines.append(Line(f"bound {sign}", places, bounds, Form.BOUND))
        yield charts.figure(name, known[name]["unit"], "run, the oldest first", lines, height=140)


def measurements_of(record: Record) -> dict[str, tuple[float, str]]:
    """Return every number that the clauses of a record read, by name: the value, which may not be finite, and its unit.

    A measurement has its name in the contract (`final_loss`). For a list, a clause reports only the item nearest to its
    bound, so the name is that of the clause (`losses[].maximum`).
    """
    measured: dict[str, tuple[float, str]] = {}
    by_rules: dict[str, tuple[float, str]] = {}
    for clause in record.clauses:
        if isinstance(clause.value, Mapping):
            read = clause.value if clause.bound is not None and clause.bound.keyword == RULE else {}
            for name, value in read.items():
                if is_number(value):
                    by_rules[name] = value, ""
        elif is_number(clause.value) and not clause.id.startswith("resolved."):
            place, _, keyword = clause.id.rpartition(".")
            items = "[]" in place or "{}" in place
            name = clause.id if items or clause.id.startswith("residency.") else place
            if name and not (items and keyword == "type"):
                measured.setdefault(name, (clause.value, clause.unit))
    return measured | {name: value for name, value in by_rules.items() if name not in measured}
