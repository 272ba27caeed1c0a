"""The messages between the processes of a run: dataclasses, one encoder, one decoder.

    pipe.write(sign(encode(Measured({"loss": 5.1}))))  # there
    message = decode(verifier.opened(line))            # here

The harness sends a `Request` to the fork server. A trial's supervisor and the trial itself write every other message
as a signed line (`harness.execution.authentication`) to the trial's pipe.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, final, get_args

from harness.authoring.reports import Resolved, Stepped, TrialReport
from harness.authoring.setting import Setting
from harness.base import strictjson
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.contract.patch import Patch
from harness.judging.observation import EndingKind

__all__ = [
    "IMPORTING",
    "LARGEST_MESSAGE",
    "MOST_COLUMNS",
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

IMPORTING = "importing"
"""The file in a fork server's folder with the name of the module that is imported now, or was imported last."""
LARGEST_MESSAGE = 16 << 20
"""Most bytes of one message of a trial. A document of a bundle has the same limit."""


class MessageError(ValueError):
    """A text is not a message. It can be the beginning of one whose writer died."""


@final
@dataclass(frozen=True)
class Import(JsonDataclass):
    """To the fork server: import these modules. The answer is `Imports`."""

    modules: tuple[str, ...]
    root: Path
    """Of the project."""


@final
@dataclass(frozen=True)
class Imports(JsonDataclass):
    """The fork server's answer: the failed imports by module, and the sha256 of every source file of the project."""

    failures: Mapping[str, str]
    sources: Mapping[str, str]


@final
@dataclass(frozen=True)
class Split(JsonDataclass):
    """To the fork server: fork another one, which begins with what this one has imported. The answer is `Splitting`."""

    name: str
    """The name of the new server's folder, in the first server's folder."""
    libraries: tuple[str, ...]
    """Modules, and names in modules, that the new server imports at once. It skips those that it cannot import."""
    root: Path
    """Of the project."""


@final
@dataclass(frozen=True)
class Splitting(JsonDataclass):
    """The fork server has forked another server."""

    pid: int


@final
@dataclass(frozen=True)
class Start(JsonDataclass):
    """To the fork server: fork a trial with these values."""

    root: Path
    """Of the project."""
    falsifier: str
    subject: str
    """Entry points."""
    setting: Setting
    threads: int
    artifacts: Path
    memory_gib: float
    """The requirements of the profile."""
    declared: tuple[str, ...]
    """The measurements that the contract declares."""
    claim: Path
    """The file with the input of a search (see `harness.tools.search.cases`)."""
    environment: Mapping[str, str]
    """Environment variables of the trial."""
    search: tuple[str, ...] = ()
    """The folders of `root` from which the trial imports the project's code; none if the server has imported it."""
    around: Mapping[str, str] = field(default_factory=dict)
    """Entry points of context managers that a tool puts around the trial, each with its argument."""
    isolated: str = ""
    """The entry point of an `IsolatedSubject`, if the subject runs in a process of its own."""
    is_timed: bool = False
    """Whether the claim measures time, so that no other thread may run beside the subject."""
    patches: tuple[Patch, ...] = ()
    """What makes the subject a mutant. The trial imports the project anew with them."""


@final
@dataclass(frozen=True)
class Started(JsonDataclass):
    """The supervisor has started the trial's process."""

    pid: int
    supervisor: int = 0
    """The process that sent this; 0 if it is not known."""


@final
@dataclass(frozen=True)
class Read(JsonDataclass):
    """The trial has imported or read these source files of the project for the first time: sha256 by path."""

    sources: Mapping[str, str]


@final
@dataclass(frozen=True)
class Ended(JsonDataclass):
    """The trial's last message."""

    kind: EndingKind
    reason: str
    traceback: str | None
    allocator_peak_bytes: int | None


@final
@dataclass(frozen=True)
class Lost(JsonDataclass):
    """The fork server could not fork the trial."""

    reason: str


@final
@dataclass(frozen=True)
class Exited(JsonDataclass):
    """The supervisor's last message: the exit status of the trial's process, or the signal that ended it."""

    code: int | None = None
    signal: str | None = None


Request = Import | Split | Start
Message = TrialReport | Started | Read | Ended | Lost | Exited
Received = Request | Imports | Splitting | Message
"""Everything that `decode` returns."""


def encode(message: Received) -> bytes:
    """A message as one line of JSON, without its end. A number that is not finite is tagged.

    Raises:
        TypeError: a value is not JSON.
    """
    return json.dumps([type(message).__name__, message.to_json()]).encode()


def decode(text: bytes) -> Received:
    """The inverse of `encode`. A message can hold values that the subject returned, so this checks every value, once.

    Raises:
        MessageError: the text is not a message, or a field is missing, unknown or not allowed.
    """
    try:
        name, fields = json.loads(text, parse_constant=_refused)
        if strictjson.is_deep(fields):
            raise ValueError("nested too deeply")
        message = _KINDS[name].from_json(fields)
        for field, is_allowed in _ALLOWED.get(type(message), {}).items():
            if not is_allowed(getattr(message, field)):
                raise ValueError(f"{field} is not allowed")
        return message
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise MessageError(f"{text[:100].decode(errors='replace')!r} is not a message") from error


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _is_exact(number: int) -> bool:
    return -_EXACT <= number <= _EXACT


def _is_count(number: int | None) -> bool:
    return number is None or 0 <= number <= _EXACT


def _is_pid(number: int) -> bool:
    return 1 <= number < 1 << 31


def _is_row(values: JsonObject) -> bool:
    """Whether these are the values of a step: few numbers with short names."""
    short = len(values) <= MOST_COLUMNS and all(len(name) <= _LONGEST_NAME for name in values)
    return short and all(type(value) in (int, float, bool, NoneType) for value in values.values())


def _is_resolved(values: JsonObject) -> bool:
    known = all(type(value) is _RESOLVED.get(name) for name, value in values.items())
    return known and _is_exact(values.get("steps", 0))


def _are_digests(sources: Mapping[str, str]) -> bool:
    return all(_SHA256.fullmatch(digest) for digest in sources.values())


MOST_COLUMNS = 1_000
"""Most names of step values."""
_LONGEST_NAME = 1_000
_EXACT = 1 << 53
"""The largest integer that every reader of JSON keeps exactly."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RESOLVED: Mapping[str, type] = {
    "device": str, "dtype": str, "backend": str, "steps": int, "contradiction": str, "unlike_files": str,
    "told_device": str, "allocated_bytes": int,
}  # fmt: skip
_ENDINGS = (EndingKind.COMPLETED, EndingKind.NOT_MEASURED, EndingKind.SUBJECT_FAULT, EndingKind.FALSIFIER_FAULT)
"""The endings that a trial can report. The harness observes every other ending."""
_SIGNALS = {
    None,
    *(known_signal.name for known_signal in signal.valid_signals() if isinstance(known_signal, signal.Signals)),
}
_ALLOWED: Mapping[type[Received], Mapping[str, Callable[[Any], bool]]] = {
    Stepped: {"step": _is_exact, "values": _is_row},
    Resolved: {"values": _is_resolved},
    Imports: {"sources": _are_digests},
    Read: {"sources": _are_digests},
    Started: {"pid": _is_pid},
    Splitting: {"pid": _is_pid},
    Ended: {"kind": _ENDINGS.__contains__, "allocator_peak_bytes": _is_count},
    Exited: {"code": _is_count, "signal": _SIGNALS.__contains__},
}
"""The limits of fields that their types do not state."""
_KINDS: Mapping[str, type[Received]] = {kind.__name__: kind for kind in get_args(Received)}
