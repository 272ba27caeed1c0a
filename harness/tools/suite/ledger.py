"""What a run of a suite executed, and what it lacks beside an earlier run or beside a contract.

    now = Ledger.read(lines)
    print(now.against(stated(kept)).missing)

A *cell* is a test function with values of its parameters. What a run executed is kept as lines of text, such as
`tests/test_smoke.py::test_forward: 3 assertions, 5 checks; head_dim in 32, 64, 128; contextuals in 0, 4`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self, final

from harness.base import strictjson
from harness.base.strictjson import JsonObject

__all__ = ["DESELECTED", "NOT_RUN", "PASSED", "Cell", "Difference", "Expected", "Ledger", "lines_of", "stated"]

PASSED: Final = "passed"
NOT_RUN: Final = "not run"
DESELECTED: Final = "deselected"
Expected = Mapping[str, Mapping[str, tuple[int, int]]]
"""What a suite has to execute: by function and cell, the least `places` and `held`."""
LONGEST: Final = 200
"""Entries of a list of differences that are kept. One is enough to refute."""


@final
@dataclass(frozen=True)
class Cell:
    """A test with one set of parameters, and its outcome."""

    outcome: str
    """`passed`, `failed`, `skipped`, `xfailed`, `deselected` or `not run`."""
    places: int = 0
    """The assertions of the source text that held."""
    held: int = 0
    """How often assertions held; as many as `places` if a library draws the test's examples."""
    reason: str = ""
    identifier: str = ""
    """The id that pytest gave the test."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The values of the test's parameters, by name."""
    forcible: tuple[str, ...] = ()
    """The places of `places`."""


@final
@dataclass
class Difference:
    """The differences between a run and what is expected. Each list has a sentence for each cell."""

    missing: list[str] = field(default_factory=list)
    """Expected cells that no test of the suite has."""
    skipped: list[str] = field(default_factory=list)
    expected_to_fail: list[str] = field(default_factory=list)
    deselected: list[str] = field(default_factory=list)
    """Cells that an option, conftest.py or an early end left out."""
    fewer_assertions: list[str] = field(default_factory=list)
    """Cells in which fewer places assert."""
    fewer_checks: list[str] = field(default_factory=list)
    """Cells in which assertions hold less often, such as in a loop over fewer values."""
    unexpected: list[str] = field(default_factory=list)

    def measurements(self) -> dict[str, list[str]]:
        """Return the first entries of every list, by name."""
        return {name: entries[:LONGEST] for name, entries in vars(self).items()}


@final
@dataclass(frozen=True)
class Ledger:
    """What a run of a suite executed: cells by function and parameters."""

    functions: Mapping[str, Mapping[str, Cell]]
    broken: tuple[str, ...] = ()
    """Files that could not be imported, and that the session did not end in order."""
    skipped_files: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """The files below the suite's root that the session imported."""
    lines: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By test id, the traced lines, `file:line`, that ran while it was called; those of no test are those of ''."""
    status: int = 0
    """The exit status of pytest."""

    @classmethod
    def read(cls, lines: Iterable[str], status: int = 0) -> Self:
        """Read what the plugin wrote."""
        named: dict[str, JsonObject] = {}
        outcomes: dict[str, JsonObject] = {}
        broken: list[str] = []
        files: dict[str, str] = {}
        lines_of_tests: dict[str, frozenset[str]] = {}
        has_ended, imported = False, ()
        for line in lines:
            entry = strictjson.loads(line)
            match entry:
                case {"collected": identifier}:
                    named[identifier] = entry
                case {"deselected": identifier}:
                    outcomes.setdefault(identifier, {"outcome": DESELECTED})
                case {"test": identifier}:
                    outcomes[identifier] = entry
                case {"file": name, "outcome": "skipped", "reason": reason}:
                    files[name] = reason
                case {"file": name, "reason": reason}:
                    broken.append(f"{name}: {reason}")
                case {"called": identifier, "lines": executed}:
                    lines_of_tests[identifier] = frozenset(executed)
                case {"end": _}:
                    has_ended, imported = True, tuple(entry["files"])
                    lines_of_tests[""] = frozenset(entry.get("lines", ()))
        if not has_ended:
            broken.append("the session of pytest did not end in order")
        functions: dict[str, dict[str, Cell]] = defaultdict(dict)
        for identifier, entry in named.items():
            cells = functions[entry["function"]]
            text = _cell_text(entry["cell"])
            if text in cells:  # equal values under several ids
                text = f"{text} #{sum(cell.partition(' #')[0] == text for cell in cells) + 1}"
            cells[text] = _cell(identifier, entry, outcomes.get(identifier, {"outcome": NOT_RUN}))
        return cls(functions, tuple(broken), files, imported, lines_of_tests, status)

    def cells(self, outcome: str | None = None) -> Iterator[tuple[str, str, Cell]]:
        """Yield function, parameters and cell; with an outcome, only cells of that one."""
        for name, cells in self.functions.items():
            for text, cell in cells.items():
                if outcome is None or cell.outcome == outcome:
                    yield name, text, cell

    def no_more_than(self, expected: Expected) -> Ledger:
        """Return this ledger, with counts limited to the expected ones where as many places assert."""
        functions = {}
        for name, cells in self.functions.items():
            wanted = expected.get(name, {})
            functions[name] = {
                text: replace(cell, held=min(cell.held, wanted[text][1] or cell.held))
                if text in wanted and wanted[text][0] == cell.places
                else cell
                for text, cell in cells.items()
            }
        return replace(self, functions=functions)

    def against(self, expected: Expected, *, exactly: bool = False) -> Difference:
        """Return what this run lacks of what is expected.

        Args:
            exactly: whether the expected functions may execute no other cells.
        """
        difference = Difference()
        for name, wanted in expected.items():
            cells = self.functions.get(name, {})
            for text, (places, held) in wanted.items():
                self._compare(difference, f"{name} [{text}]" if text else name, cells.get(text), places, held, name)
            others = [text for text, cell in cells.items() if text not in wanted and cell.outcome == PASSED]
            difference.unexpected += [f"{name} [{text}]" for text in others if exactly]
        return difference

    def _compare(self, difference: Difference, what: str, cell: Cell | None, places: int, held: int, name: str) -> None:
        if cell is None:
            file = name.partition("::")[0]
            if file in self.skipped_files:
                difference.skipped.append(f"{what}: the whole file, {self.skipped_files[file]}")
            else:
                difference.missing.append(what)
        elif cell.outcome == "skipped":
            difference.skipped.append(f"{what}: {cell.reason}")
        elif cell.outcome == "xfailed":
            difference.expected_to_fail.append(f"{what}: {cell.reason}")
        elif cell.outcome in (DESELECTED, NOT_RUN):
            difference.deselected.append(f"{what}: {cell.outcome}")
        elif cell.outcome == PASSED:  # `failed` lists those that failed
            if cell.places < places:
                difference.fewer_assertions.append(f"{what}: {cell.places} of {places}")
            elif cell.held < held:
                difference.fewer_checks.append(f"{what}: {cell.held} of {held}")


def _cell(identifier: str, entry: JsonObject, ended: JsonObject) -> Cell:
    held: Mapping[str, int] = ended.get("held", {})
    is_alone = not entry["python"] and ended["outcome"] == PASSED  # a doctest, say, asserts by itself
    return Cell(
        outcome=ended["outcome"],
        places=len(held) or int(is_alone),
        held=len(held) if entry["drawn"] else sum(held.values()) or int(is_alone),
        reason=ended.get("reason", ""),
        identifier=identifier,
        values=entry["cell"],
        forcible=tuple(held),
    )


def _cell_text(values: Mapping[str, str]) -> str:
    """Return the values of parameters as one text."""
    return ", ".join(f"{name}={value}" for name, value in sorted(values.items()))


_LEAST = re.compile(r"(?P<places>[0-9]+) assertions?(, (?P<held>[0-9]+) checks?)?")
_AXIS = re.compile(r"(?P<name>[^ ]+) in (?P<values>.*)", re.DOTALL)
_CELL = "; cell "


def stated(lines: Iterable[str]) -> Expected:
    """Return what lines of text state; a function may have several lines.

        tests/test_attention.py::test_smoke: 4 assertions; head_dim in 32, 64, 128; contextuals in 0, 4
        tests/test_attention.py::test_refusal: 1 assertion, 3 checks; cell dtype=torch.float32

    The first line means the six cells of the product. Without parameters there is one cell. Checks are how often the
    assertions hold.

    Raises:
        ValueError: a line has another form; the text says which.
    """
    cells_by_function: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for line in lines:
        function, _, rest = line.partition(": ")
        head, is_cell, cell = rest.partition(_CELL)
        least, *parts = head.split("; ")
        counts, axes = _LEAST.fullmatch(least), [_AXIS.fullmatch(part) for part in parts]
        if counts is None or not all(axes):
            raise ValueError(f"{line!r} is not FUNCTION: N assertions; NAME in VALUE, VALUE")
        values = {axis["name"]: axis["values"].split(", ") for axis in axes if axis is not None}
        grid = [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]
        cells = [cell] if is_cell else [_cell_text(value) for value in grid]
        cells_by_function[function] |= dict.fromkeys(cells, (int(counts["places"]), int(counts["held"] or 0)))
    return cells_by_function


def lines_of(ledger: Ledger) -> Iterator[str]:
    """Yield the lines that state what a run executed."""
    for name, cells in sorted(ledger.functions.items()):
        alike: dict[tuple[int, int], dict[str, Cell]] = defaultdict(dict)
        for text, cell in cells.items():
            if cell.outcome == PASSED:
                alike[cell.places, cell.held][text] = cell
        for (places, held), alike_cells in alike.items():
            axes = _axes(alike_cells)
            head = f"{name}: {places} assertion{'s' * (places != 1)}, {held} check{'s' * (held != 1)}"
            if axes is None:
                yield from (f"{head}{_CELL}{text}" for text in alike_cells)
            else:
                yield "; ".join([head, *(f"{axis} in {', '.join(values)}" for axis, values in axes.items())])


def _axes(cells: Mapping[str, Cell]) -> dict[str, list[str]] | None:
    """Return the values of each parameter if their product are these cells, and nothing in them splits a line."""
    values = [cell.values for cell in cells.values()]
    axes = {name: list(dict.fromkeys(value[name] for value in values)) for name in values[0]}
    is_plain = not any(sign in value for axis_values in axes.values() for value in axis_values for sign in (", ", "; "))
    is_grid = {_cell_text(value) for value in values} == cells.keys() and math.prod(map(len, axes.values())) == len(
        cells
    )
    return axes if is_plain and is_grid and all(" " not in name for name in axes) else None
