"""The location of a contract for reports: its path relative to the current folder, and the lines of its parts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from harness.base import strictjson
from harness.contract import Contract
from harness.judging.record import Record
from harness.report.escaping import printable
from harness.report.messages.not_finite import wrong

__all__ = ["UNKNOWN", "ContractFile"]

_Place = tuple[str | int, ...]
"""The keys and positions that lead to a value."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]|[^\s"\[\]{},:]+')
_STEP = re.compile(r"\[\]|\{\}|[^.\[\]{}]+")
_WITHIN = {"[]": ("items",), "{}": ("additionalProperties",)}


@final
@dataclass(frozen=True)
class ContractFile:
    """The contract file of a claim, and the lines of its parts. A missing part has that of its enclosing part, or 1."""

    name: str
    """Relative to the current folder; empty if unknown."""
    text: str

    @classmethod
    def of(cls, contract: Contract) -> ContractFile:
        """Return the file of a loaded contract."""
        name = printable(os.path.relpath(contract.path).replace(os.sep, "/"))
        return cls(name, contract.content.decode("utf-8", "replace"))

    def line_of(self, record: Record) -> int:
        """Return the line of the clause that decided a verdict; of the claim if none did."""
        clauses, _ = wrong(record.clauses)
        return self.clause(clauses[0].id) if clauses else self.claim()

    def claim(self) -> int:
        """Return the line of the claim's id."""
        return self._line(("id",))

    def clause(self, name: str) -> int:
        """Return the line of a clause's keyword or of a rule; of a built-in clause, that of the subject."""
        if rule := self._item("rules", name):
            return self._line(rule)
        *steps, keyword = _STEP.findall(name) or [""]
        place = [part for step in steps for part in _WITHIN.get(step, ("properties", step))]
        # The schema of a measurement can be a reference, and a contract can have changed since.
        whole = ("observation", *place, keyword)
        for length in range(len(whole), 2, -1):
            if whole[:length] in self._places:
                return self._line(whole[:length])
        return self._line(("subject",))

    def mutant(self, name: str) -> int:
        """Return the line of a mutant."""
        return self._line(self._item("mutants", name) or ("mutants",))

    def _line(self, place: _Place) -> int:
        return self._places.get(place, 1)

    def _item(self, key: str, name: str) -> _Place:
        """Return the place of the id of the item with this id; empty if there is none."""
        items = self._document.get(key) if isinstance(self._document, dict) else None
        for position, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict) and item.get("id") == name:
                return key, position, "id"
        return ()

    @cached_property
    def _document(self) -> Any:
        try:
            return strictjson.loads(self.text)
        except strictjson.JsonError:
            return None

    @cached_property
    def _places(self) -> dict[_Place, int]:
        return {} if self._document is None else dict(_places(self.text))


def _places(text: str) -> Iterator[tuple[_Place, int]]:
    """Yield the place of each member and item of a JSON document, with the line on which it begins."""
    steps: list[str | int | None] = []
    line, read = 1, 0
    for token in _TOKEN.finditer(text):
        line, read = line + text.count("\n", read, token.start()), token.start()
        word = token[0]
        if word in "]}":
            steps.pop()
            continue
        if word == ",":
            last = steps[-1]
            steps[-1] = last + 1 if isinstance(last, int) else None
            continue
        if steps and steps[-1] is None:  # the key of a member
            steps[-1] = strictjson.loads(word)
            yield tuple(step for step in steps if step is not None), line
            continue
        if steps and isinstance(steps[-1], int):
            yield tuple(step for step in steps if step is not None), line
        if word in "[{":
            steps.append(0 if word == "[" else None)


UNKNOWN = ContractFile("", "")
