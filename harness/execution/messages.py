"""The messages between the processes of a run: dataclasses, one encoder, one decoder.

    pipe.write(line(Measured({"loss": 5.1})))     # there
    message = decode(b'{"kind": "Measured", …}')  # here

The harness sends a `Request` to the fork server. A trial's supervisor and the trial itself write every other message
as a line to the trial's pipe.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, final, get_args, get_type_hints

from harness.authoring.reports import TrialReport
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase
from harness.judging.observation import EndingKind

__all__ = [
    "LARGEST_MESSAGE",
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
    "Start",
    "Started",
    "decode",
    "encode",
    "line",
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


Request = Import | Start
Message = TrialReport | Started | Read | Ended | Lost | Exited
Received = Request | Imports | Message
"""Everything that `decode` returns."""


def encode(message: Received) -> bytes:
    """A message as one line of JSON, without its end.

    Raises:
        TypeError: a value is not JSON.
    """
    return _ENCODER.encode([type(message).__name__, vars(message)]).encode()


def line(message: Received) -> bytes:
    """A message as a line of a pipe. The newline before it ends a message that was cut short."""
    return b"\n" + encode(message) + b"\n"


def decode(text: bytes) -> Received:
    """The inverse of `encode`.

    Raises:
        MessageError: the text is not a message, or a field is missing, superfluous or of another type.
    """
    try:
        name, fields = json.loads(text)
        kind, readers = _KINDS[name]
        return kind(**{field: readers[field](value) for field, value in fields.items()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MessageError(f"{text[:100].decode(errors='replace')!r} is not a message") from error


def _instance(*types: type) -> Callable[[Any], Any]:
    """Reads a value that has one of these types."""

    def read(value: Any) -> Any:
        if not isinstance(value, types):
            raise TypeError(f"{value!r:.100} is none of {types}")
        return value

    return read


_READERS: Mapping[Any, Callable[[Any], Any]] = {
    str: _instance(str),
    int: _instance(int),
    float: _instance(int, float),
    str | None: _instance(str, NoneType),
    int | None: _instance(int, NoneType),
    tuple[str, ...]: tuple,
    JsonObject: _instance(dict),
    Mapping[str, str]: _instance(dict),
    Path: Path,
    Phase: Phase,
    EndingKind: EndingKind,
}
_KINDS: Mapping[str, tuple[type[Received], Mapping[str, Callable[[Any], Any]]]] = {
    kind.__name__: (kind, {name: _READERS[wanted] for name, wanted in get_type_hints(kind).items()})
    for kind in get_args(Received)
}
