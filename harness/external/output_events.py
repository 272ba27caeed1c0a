"""Reading what a trainer prints: bytes in, events out. Pure, in time linear in the bytes, and bounded in memory.

    reader = LogReader(trainer.lines)
    for event in reader.feed(chunk):
        ...

Terminals are undone: escape sequences are taken out, and a carriage return ends a line as a newline does, so that each
state of a progress bar is a line of its own. A last line without an end may be half of one, and half a number is
another number: it is believed only where `end` says that the output is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.external.linear_regex import compiled

__all__ = ["LONGEST_LINE", "Event", "EventKind", "LineRule", "LogReader"]

LONGEST_LINE = 1 << 16
"""Bytes of a line that are looked at; the rest of a longer one is passed over."""
_LONGEST_VALUE = 4096
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
"""A null among these may be what the writer made of NaN, as JavaScript's and Rust's do: told, it is no number."""
_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "infinity": float("inf")}


class EventKind(StrEnum):
    """What a line tells."""

    STEP = "step"
    """An optimizer step was made: `step` and any numbers, `loss` among them."""
    SUMMARY = "summary"
    """Of the whole run: `steps`, `initial_loss`, `final_loss`, `seconds`, in one line or several."""
    CHECKPOINT = "checkpoint"
    """A periodic checkpoint was written: `step` or `path`."""
    FAILED_SAVE = "failed_save"
    """A periodic checkpoint could not be written."""
    RAN = "ran"
    """What the run used: `device`, `dtype`, `backend`, `target` (such as sm_121), of which only what the line says."""
    OUT_OF_MEMORY = "out_of_memory"
    FAILED_UPLOAD = "failed_upload"
    """Weights could not be put on the device: of `block`, where the line says which."""
    COMPILED = "compiled"
    """A `kernel` was compiled, or so many were by the run's own `count`."""
    WARMED = "warmed"
    """What is made ready before the first step is ready: so many `kernels`."""
    REFUSED_LOAD = "refused_load"
    """The driver refused code that it would have had to compile."""


@dataclass(frozen=True)
class Event:
    """One thing that a trainer said; texts are as printed, without spaces around them."""

    kind: EventKind
    values: Mapping[str, str]
    line: str

    def number(self, name: str) -> float | None:
        """A value as a number; None where there is none, or it is none. NaN and infinities are numbers here."""
        return number(self.values[name]) if name in self.values else None

    def whole(self, name: str) -> int | None:
        """A value as a count: a whole number that a double holds exactly, not negative."""
        found = self.number(name)
        return int(found) if found is not None and 0 <= found < 2**53 and found == int(found) else None


@dataclass(frozen=True)
class LineRule:
    """Which lines tell of an event, and where in them the values are: by an expression, or by keys of a JSON object."""

    kind: EventKind
    pattern: Any = None
    """A compiled RE2 expression."""
    keys: Mapping[str, str] | None = None

    @classmethod
    def of_pattern(cls, kind: EventKind, expression: str) -> LineRule:
        """A rule that searches lines; PatternRefused where the expression could run away."""
        return cls(kind, pattern=compiled(expression))

    def read(self, line: str, document: Any) -> Event | None:
        """The event that a line tells by this rule, or None. `document` is the line as JSON, where it is that."""
        if self.keys is not None:
            found = {name: _at(document, path) for name, path in self.keys.items()}
            if any(value is _ABSENT or (value is None and name not in _LOSSES) for name, value in found.items()):
                return None
            return Event(self.kind, {name: _text(value) for name, value in found.items()}, line)
        match = self.pattern.search(line)
        if match is None:
            return None
        values = {name: value.strip()[:_LONGEST_VALUE] for name, value in match.groupdict().items() if value}
        return Event(self.kind, values, line)


class LogReader:
    """Reads one stream; several streams have a reader each, for the halves of their lines may alternate."""

    def __init__(self, rules: Sequence[LineRule]) -> None:
        self._rules = rules
        self._wants_json = any(rule.keys is not None for rule in rules)
        self._line = bytearray()
        self.newest = ""
        """The last line that ended and says anything."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events of the lines that end in this chunk."""
        position = 0
        for end in _ENDS.finditer(chunk):
            self._add(chunk[position : end.start()])
            position = end.end()
            yield from self._read()
        self._add(chunk[position:])

    def end(self) -> Iterator[Event]:
        """The events of a last line without an end, of an output that is whole."""
        yield from self._read()

    @property
    def last_words(self) -> str:
        """What the stream said last, whether or not that line ended; empty where it said nothing."""
        return self.unfinished or self.newest

    @property
    def unfinished(self) -> str:
        """The beginning of a line whose end was not seen."""
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
        for rule in self._rules:
            event = rule.read(line, document)
            if event is not None:
                yield event


def number(text: str) -> float | None:
    """A printed number, with commas or underscores between thousands where there are; None where it is none."""
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
    """What lies at a dotted path of a JSON object; `_ABSENT` where there is none."""
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
