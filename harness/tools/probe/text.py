"""A probe's document as lines for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.report.messages.number_text import binary
from harness.report.terminal.printing import Block, Table

__all__ = ["case_table", "holders", "largest", "parameters", "probe_lines", "unmeasured"]

_MOST_MODULES = 12


def probe_lines(document: JsonObject) -> Iterator[Block]:
    """Yield the cases as a table, then the peak of a single case, or the largest values that fit."""
    device, cases = document["device"], document["cases"]
    yield f"{document['target']} on {device['name']}"
    yield case_table(document)
    yield ""
    if len(cases) == 1:
        yield from _peak(cases[0])
    yield from largest(document)
    yield from unmeasured(cases)
    note = f"verdicts allow for {100 * device['error']:.3g} % of error, and {binary(device['context'])}"
    yield f"{note} outside the allocator"


def case_table(document: JsonObject) -> Table:
    """Return a table of the predictions, and whether each case fits."""
    return Table([("parameters", "allocated", "reserved", "of", "verdict"), *map(_row, document["cases"])])


def holders(case: JsonObject) -> list[Table]:
    """Return a table of the memory at the peak, by owner and by module."""
    parts = (("owner", [*case["by_owner"].items()]), ("module", _modules(case["by_module"])))
    return [
        Table([(title, "at the peak"), *((name, binary(size)) for name, size in rows if size)]) for title, rows in parts
    ]


def unmeasured(cases: Sequence[JsonObject]) -> list[str]:
    """Return a line that names the operators whose memory was never measured; none if there is no such operator."""
    names = sorted({name for case in cases for name in case["unmeasured"]})
    why = "not known to fit, because the memory of these operators was never measured"
    return [f"{why}: {', '.join(names)}"] if names else []


def largest(document: JsonObject) -> list[str]:
    """Return the largest value of each swept parameter with which every case fits."""
    values, cases = document["largest_that_fits"], document["cases"]
    swept = [name for name in cases[0]["parameters"] if len({repr(case["parameters"][name]) for case in cases}) > 1]
    lines = []
    for name, value in values.items():
        others = " with every " + " and ".join(other for other in swept if other != name) if len(swept) > 1 else ""
        lines.append(f"no {name} fits{others}" if value is None else f"largest {name} that fits{others}: {value}")
    return lines


def parameters(chosen: Mapping[str, Any]) -> str:
    """Return parameters as NAME=VALUE."""
    return " ".join(
        f"{name}={value if isinstance(value, str) else strictjson.dumps(value)}" for name, value in chosen.items()
    )


def _modules(by_module: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the modules with most memory. Modules that differ only in numbers, such as layers, are one row."""
    totals: dict[str, int] = {}
    for name, size in by_module.items():
        alike = re.sub(r"\b[0-9]+\b", "*", name) or "outside modules"
        totals[alike] = totals.get(alike, 0) + size
    ordered = sorted(totals.items(), key=lambda item: -item[1])
    rest = sum(size for _, size in ordered[_MOST_MODULES:])
    return [*ordered[:_MOST_MODULES], *([("others", rest)] if rest else [])]


def _row(case: JsonObject) -> tuple[str, ...]:
    retried = f" after {case['retries']} retries" if case["retries"] else ""
    return (
        parameters(case["parameters"]) or "-",
        binary(case["allocated"]),
        binary(case["reserved"]),
        binary(case["capacity"]),
        case["fit"] + retried,
    )


def _peak(case: JsonObject) -> Iterator[Block]:
    place = case["peak"]
    yield f"peak in {place['phase']}: {place['operator']}"
    yield f"  at {place['line'] or 'no line of Python outside torch'}"
    if place["library"]:
        yield f"  in {place['library']}"
    if place["module"]:
        yield f"  of {place['module']}"
    yield ""
    for table in holders(case):
        yield from (table, "")
