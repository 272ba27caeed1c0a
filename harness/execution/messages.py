"""The messages between the processes of a run: dataclasses, one encoder, one decoder.

    pipe.write(sign(encode(Measured({"loss": 5.1}))))  # there
    message = decode(verifier.opened(line))            # here

The harness sends a `Request` to the fork server. A trial's supervisor and the trial itself write every other message
as a signed line (`harness.execution.authentication`) to the trial's pipe.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, final, get_args, get_type_hints

from harness.authoring.reports import Resolved, Stepped, TrialReport
from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase
from harness.judging.observation import EndingKind

__all__ = [
    "LARGEST_MESSAGE",
    "MOST_COLUMNS",
    "Doing",
    "Ended",
    "Exited",
    "Import",
    "Imports",
    "Lost",
    "Message",
    "MessageError",
    "Read",
    "Received",
    "Request",
    "Split",
    "Splitting",
    "Start",
    "Started",
    "decode",
    "encode",
]

LARGEST_MESSAGE = 16 << 20
"""Most bytes of one message of a trial. A document of a bundle has the same limit."""


_ENCODER = json.JSONEncoder(default=os.fspath)


class MessageError(ValueError):
    """A text is not a message. It can be the beginning of one whose writer died."""


@final
@dataclass(frozen=True)
class Import:
    """To the fork server: import these modules. The answer is `Imports`."""

    modules: tuple[str, ...]
    root: Path
    """Of the project."""


@final
@dataclass(frozen=True)
class Imports:
    """What the fork server imported: failures by module, and the sha256 of every source file of the project."""

    failures: Mapping[str, str]
    sources: Mapping[str, str]


@final
@dataclass(frozen=True)
class Split:
    """To the fork server: fork another one, which begins with what this one has imported. The answer is `Splitting`."""

    name: str
    """Of the new server's folder, in that of the first server."""
    libraries: tuple[str, ...]
    """What the new server imports at once: modules, and names in modules. What cannot be imported is left out."""
    root: Path
    """Of the project."""


@final
@dataclass(frozen=True)
class Splitting:
    """The fork server has forked another server."""

    pid: int


@final
@dataclass(frozen=True)
class Start:
    """To the fork server: fork a trial with these values."""

    root: Path
    """Of the project."""
    falsifier: str
    subject: str
    """Entry points."""
    parameters: JsonObject
    device: str
    """"cpu" or "cuda:0"."""
    seed: int
    threads: int
    workspace: Path
    artifacts: Path
    cache: Path
    memory_gib: float
    """The requirements of the profile."""
    declared: tuple[str, ...]
    """The measurements that the contract declares."""
    claim: Path
    """The file with the input of a search (see `harness.search.explorer`)."""
    environment: Mapping[str, str]
    """Environment variables of the trial."""
    search: tuple[str, ...] = ()
    """The folders of `root` from which the trial imports the project's code; none if the server has imported it."""
    reached: str | None = None
    """The file to which the trial writes the lines that it ran: see `harness.execution.reached`."""
    isolated: bool = False
    """Whether the subject runs in a process of its own."""
    is_timed: bool = False
    """Whether the claim measures time, so that no other thread may run beside the subject."""


@final
@dataclass(frozen=True)
class Started:
    """The supervisor has started the trial's process."""

    pid: int


@final
@dataclass(frozen=True)
class Read:
    """The trial has imported or read these source files of the project for the first time: sha256 by path."""

    sources: Mapping[str, str]


@final
@dataclass(frozen=True)
class Doing:
    """What the trial does now (`harness.execution.whereabouts`). Nothing depends on it."""

    text: str


@final
@dataclass(frozen=True)
class Ended:
    """The trial's last message."""

    kind: EndingKind
    reason: str
    traceback: str | None
    allocator_peak_bytes: int | None


@final
@dataclass(frozen=True)
class Lost:
    """The fork server could not fork the trial."""

    reason: str


@final
@dataclass(frozen=True)
class Exited:
    """The supervisor's last message: the exit status of the trial's process, or the signal that ended it."""

    code: int | None = None
    signal: str | None = None


Request = Import | Split | Start
Message = TrialReport | Started | Read | Doing | Ended | Lost | Exited
Received = Request | Imports | Splitting | Message
"""Everything that `decode` returns."""


def encode(message: Received) -> bytes:
    """A message as one line of JSON, without its end.

    Raises:
        TypeError: a value is not JSON.
    """
    return _ENCODER.encode([type(message).__name__, vars(message)]).encode()


def decode(text: bytes) -> Received:
    """The inverse of `encode`. What the subject returned can be in it, so every value is checked here, once.

    Raises:
        MessageError: the text is not a message, or a field is missing, superfluous, or not what it may be.
    """
    try:
        name, fields = json.loads(text, parse_constant=_refused)
        if strictjson.is_deep(fields):
            raise ValueError("nested too deeply")
        kind, readers = _KINDS[name]
        return kind(**{field: readers[field](value) for field, value in fields.items()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MessageError(f"{text[:100].decode(errors='replace')!r} is not a message") from error


_Reader = Callable[[Any], Any]


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _held(is_held: bool, value: Any) -> Any:
    if not is_held:
        raise ValueError(f"{value!r:.100} is not allowed here")
    return value


def _of(*types: type) -> _Reader:
    """Reads a value of exactly one of these types: True is no number."""
    return lambda value: _held(type(value) in types, value)


def _within(lowest: int, highest: int) -> _Reader:
    """Reads an integer within these limits."""
    return lambda value: _held(type(value) is int and lowest <= value <= highest, value)


def _one_of(allowed: Iterable[Any]) -> _Reader:
    """Reads one of these values."""
    known = frozenset(allowed)
    return lambda value: _held(value in known, value)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_of(str), _of(list)(value)))


def _named(value: Any) -> JsonObject:
    """A map of values by name. The tag of a number is none: a file would hold a number in the map's place."""
    named: JsonObject = _of(dict)(value)
    _held(not strictjson.is_tagged(named), named)
    return named


def _map_of(item: _Reader) -> _Reader:
    """Reads a map whose values are read by `item`."""
    return lambda value: {name: item(one) for name, one in _named(value).items()}


def _resolved(value: Any) -> JsonObject:
    return {name: _RESOLVED[name](one) for name, one in _of(dict)(value).items()}


def _row(value: Any) -> JsonObject:
    """The values of a step: numbers with short names."""
    row: dict[str, Any] = _of(dict)(value)
    for name, one in row.items():
        is_number = type(one) in (int, float, bool, NoneType) or (type(one) is dict and strictjson.is_tagged(one))
        _held(is_number and len(name) <= _LONGEST_NAME, one)
    _held(len(row) <= MOST_COLUMNS, row)
    return row


MOST_COLUMNS = 1_000
"""Most names of step values."""
_LONGEST_NAME = 1_000
_EXACT = 1 << 53
"""The largest integer that every reader of JSON keeps exactly."""
_SIGNALS = {one.name for one in signal.valid_signals() if isinstance(one, signal.Signals)}
_ENDINGS = (EndingKind.COMPLETED, EndingKind.NOT_MEASURED, EndingKind.SUBJECT_FAULT, EndingKind.FALSIFIER_FAULT)
"""How a trial can say that it ended. The harness observes every other ending."""
_RESOLVED: Mapping[str, _Reader] = {
    "device": _of(str), "dtype": _of(str), "backend": _of(str), "steps": _within(-_EXACT, _EXACT),
    "contradiction": _of(str),
    "unlike_files": _of(str),
    "told_device": _of(str),
}  # fmt: skip
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGESTS = _map_of(lambda value: _held(_SHA256.fullmatch(_of(str)(value)) is not None, value))
_READERS: Mapping[Any, _Reader] = {
    str: _of(str),
    bool: _of(bool),
    int: _within(-_EXACT, _EXACT),
    float: _of(int, float),
    str | None: _of(str, NoneType),
    int | None: lambda value: value if value is None else _within(0, _EXACT)(value),
    tuple[str, ...]: _texts,
    JsonObject: _named,
    Mapping[str, str]: _map_of(_of(str)),
    Path: Path,
    Phase: Phase,
    EndingKind: lambda value: _held(value in _ENDINGS, EndingKind(value)),
}
_STRICTER: Mapping[tuple[type, str], _Reader] = {
    (Resolved, "values"): _resolved,
    (Stepped, "values"): _row,
    (Read, "sources"): _DIGESTS,
    (Imports, "sources"): _DIGESTS,
    (Start, "seed"): _of(int),
    (Started, "pid"): _within(1, (1 << 31) - 1),
    (Splitting, "pid"): _within(1, (1 << 31) - 1),
    (Exited, "signal"): _one_of({None, *_SIGNALS}),
}
"""The readers of fields whose type does not say everything."""
_KINDS: Mapping[str, tuple[type[Received], Mapping[str, _Reader]]] = {
    kind.__name__: (
        kind,
        {name: _STRICTER.get((kind, name), _READERS[wanted]) for name, wanted in get_type_hints(kind).items()},
    )
    for kind in get_args(Received)
}
