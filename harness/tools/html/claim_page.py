"""A claim as a page: its status, its runs, and the trend of every number that its clauses compare, with the bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from harness.evidence.index import measurements_of
from harness.judging.record import Record
from harness.tools.html import charts
from harness.tools.html import clause_rows as clauses
from harness.tools.html.index_page import ListedBundle, Matrix, Row
from harness.tools.html.plot import Figure, Line, drawn
from harness.tools.html.templating import page

__all__ = ["numbers", "render", "trends"]

_MOST_NUMBERS: Final = 80
_MOST_RUNS: Final = 400
_HOW_MUCH: Final = (".minItems", ".maxItems", ".minLength", ".maxLength")


def render(name: str, row: Row, matrix: Matrix, entries: Sequence[ListedBundle]) -> str:
    """Return the page of a claim.

    Args:
        name: of the project; empty without one.
        entries: the claim's bundles.
    """
    newest = sorted(entries, key=lambda one: (one.started, one.page), reverse=True)
    accepted = [one for one in newest if one.verification.accepted]
    return page(
        "claim.html.j2",
        name=name,
        row=row,
        claim=row.claim or next((one.claim for one in accepted), ""),
        fields=[(device, field) for device, field in zip(matrix.devices, row.fields, strict=True) if field],
        meaning=dict(matrix.legend).get(row.word, ""),
        entries=newest,
        trends=[(series, len(runs), drawn(trends(runs))) for series, runs in _series(accepted)],
    )


def numbers(record: Record, rows: Sequence[clauses.Row]) -> dict[str, dict[str, Any]]:
    """Return every number that a clause compares, with its unit and its bounds, as JSON values.

    A measurement has its name in the contract. What a rule computes from several has the name of the rule.
    """
    found: dict[str, dict[str, Any]] = {
        name: {"value": one.value, "unit": one.unit, "bounds": {}} for name, one in measurements_of(record).items()
    }
    for row in rows:
        if row.nature is clauses.ClauseGroup.FORM:
            found.pop(row.id, None)  # the smallest number of a list is no result if the bound only forbids a sign
        if row.nature in (clauses.ClauseGroup.RULE, clauses.ClauseGroup.BOUND) and not row.id.endswith(_HOW_MUCH):
            for count, one in enumerate(row.comparisons):
                names = (one.of, row.id, f"{row.id}, comparison {count + 1}")
                name = next((name for name in names if name in found and found[name]["value"] == one.value), None)
                if name is None:
                    name = row.id if row.id not in found else names[2]
                    found[name] = {"value": one.value, "unit": "", "bounds": {}}
                found[name]["bounds"][one.operator] = one.bound
    return dict(list(found.items())[:_MOST_NUMBERS])


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
        found = [run.numbers.get(name, {"value": None, "bounds": {}}) for run in runs]
        lines = [Line(name, places, [one["value"] for one in found])]
        for operator in dict.fromkeys(operator for one in found for operator in one["bounds"]):
            lines.append(charts.bound_line(operator, places, [one["bounds"].get(operator) for one in found]))
        yield charts.figure(name, known[name]["unit"], "run, the oldest first", lines, height=140)
