"""Reading a trainer's output: bytes in, events out. Pure, linear in time, and limited in memory.

    reader = LogReader(trainer.lines)
    for event in reader.feed(chunk):
        ...

Escape sequences of terminals are removed. A carriage return ends a line like a newline, so each state of a progress bar
is a line. A last line without an end can be half a line, with half a number. It counts only if `end` says that the
output is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["LONGEST_LINE", "Event", "EventKind", "LineRule", "LogReader"]

LONGEST_LINE = 1 << 16
"""Maximum bytes of a line that are read. The remainder of a longer line is ignored."""
_LONGEST_VALUE = 4096
_MOST_UNMATCHED = 20
_ESCAPES = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI, colours among them (ECMA-48, 5.4)
    rb"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, such as a window's title
    rb"|\x1b[@-Z\\^_`-~]|\x1b[ -/]+[0-~]"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"
)
_ENDS = re.compile(rb"[\r\n]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?\Z")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:[,_][0-9]{3})+(?:\.[0-9]*)?\Z")
_ABSENT = object()
_LOSSES = ("loss", "initial_loss", "final_loss")
"""JavaScript and Rust write NaN as null. So a null among these values counts as a value that is no number."""
_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "infinity": float("inf")}


class EventKind(StrEnum):
    """What a line reports."""

    STEP = "step"
    """An optimizer step was made: `step` and any numbers, `loss` among them."""
    SUMMARY = "summary"
    """Values of the whole run: `steps`, `initial_loss`, `final_loss`, `seconds`, on one line or several."""
    CHECKPOINT = "checkpoint"
    """A periodic checkpoint was written: `step` or `path`."""
    FAILED_SAVE = "failed_save"
    """A periodic checkpoint could not be written."""
    RAN = "ran"
    """What the run used: any of `device`, `dtype`, `backend` and `target` (such as sm_121)."""
    OUT_OF_MEMORY = "out_of_memory"
    FAILED_UPLOAD = "failed_upload"
    """Weights could not be loaded onto the device: those of `block`, if the line names it."""
    COMPILED = "compiled"
    """A `kernel` was compiled, or `count` kernels were."""
    WARMED = "warmed"
    """The preparation before the first step is complete, with so many `kernels`."""
    REFUSED_LOAD = "refused_load"
    """The driver refused to compile code."""


@dataclass(frozen=True)
class Event:
    """One event of a trainer's output. Texts are as printed, without spaces around them."""

    kind: EventKind
    values: Mapping[str, str]
    line: str

    def number(self, name: str) -> float | None:
        """A value as a number, which can be NaN or infinite; None if it is missing or not a number."""
        return number(self.values[name]) if name in self.values else None

    def whole(self, name: str) -> int | None:
        """A value as a count: a whole number that a double holds exactly, not negative."""
        value = self.number(name)
        return int(value) if value is not None and 0 <= value < 2**53 and value == int(value) else None


@dataclass(frozen=True)
class LineRule:
    """Which lines report an event, and the places of its values: in an expression, or in a JSON object."""

    kind: EventKind
    pattern: Any = None
    """A compiled RE2 expression."""
    keys: Mapping[str, str] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names of the values."""
        return frozenset(self.keys if self.keys is not None else self.pattern.groupindex)

    def read(self, line: str, document: Any) -> Event | None:
        """The event of a line by this rule, or None. `document` is the line as JSON, if it is JSON."""
        if self.keys is not None:
            members = {name: _at(document, path) for name, path in self.keys.items()}
            if any(value is _ABSENT or (value is None and name not in _LOSSES) for name, value in members.items()):
                return None
            return Event(self.kind, {name: _text(value) for name, value in members.items()}, line)
        match = self.pattern.search(line)
        if match is None:
            return None
        values = {name: value.strip()[:_LONGEST_VALUE] for name, value in match.groupdict().items() if value}
        return Event(self.kind, values, line)


class LogReader:
    """Reads one stream. Each stream needs its own reader, because parts of their lines can alternate."""

    def __init__(self, rules: Sequence[LineRule]) -> None:
        self._rules = rules
        self._wants_json = any(rule.keys is not None for rule in rules)
        self._line = bytearray()
        self.newest = ""
        """The last complete line that is not blank."""
        self.unmatched = 0
        """How many lines no rule matched."""
        self.first_unmatched: list[str] = []
        """The first of them."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events of the lines that end in this chunk."""
        position = 0
        for end in _ENDS.finditer(chunk):
            self._add(chunk[position : end.start()])
            position = end.end()
            yield from self._read()
        self._add(chunk[position:])

    def end(self) -> Iterator[Event]:
        """The events of a last line without an end, if the output is complete."""
        yield from self._read()

    @property
    def last_words(self) -> str:
        """The last line of the stream, complete or not; empty if there is none."""
        return self.unfinished or self.newest

    @property
    def unfinished(self) -> str:
        """The beginning of an incomplete line."""
        return _plain(bytes(self._line))

    def _add(self, piece: bytes) -> None:
        room = LONGEST_LINE - len(self._line)
        self._line += piece[:room]

    def _read(self) -> Iterator[Event]:
        line = _plain(bytes(self._line))
        self._line.clear()
        if not line:
            return
        self.newest = line
        document = _json(line) if self._wants_json else None
        events = [event for rule in self._rules if (event := rule.read(line, document)) is not None]
        if not events:
            self.unmatched += 1
            if len(self.first_unmatched) < _MOST_UNMATCHED:
                self.first_unmatched.append(line)
        yield from events


def number(text: str) -> float | None:
    """A printed number, also with commas or underscores between thousands; None if it is not a number."""
    text = text.strip()
    if len(text) > 400:
        return None
    if text.lower().lstrip("+-") in _NOT_FINITE:
        value = _NOT_FINITE[text.lower().lstrip("+-")]
        return -value if text.startswith("-") else value
    if _GROUPED.match(text):
        text = text.replace(",", "").replace("_", "")
    return float(text) if _NUMBER.match(text) else None


def _plain(line: bytes) -> str:
    return _ESCAPES.sub(b"", line).decode(errors="replace").strip()


def _json(line: str) -> Any:
    try:
        return json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None


def _at(document: Any, path: str) -> Any:
    """The value at a dotted path of a JSON object, or under the whole text as a key; `_ABSENT` if there is none."""
    if isinstance(document, dict) and path in document:
        return document[path]
    for key in path.split("."):
        if not isinstance(document, dict) or key not in document:
            return _ABSENT
        document = document[key]
    return document


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return json.dumps(value)[:_LONGEST_VALUE]
    try:
        return str(value)[:_LONGEST_VALUE]
    except ValueError:  # an integer of thousands of digits
        return "inf"
