"""The messages between the processes of a run: dataclasses, one encoder, one decoder.

    pipe.write(sign(encode(Measured({"loss": 5.1}))))  # in the trial's process
    message = decode(verifier.opened(line))            # in the harness

The harness sends a `Request` to the fork server. A trial and its supervisor write all other messages to the trial's
pipe, as signed lines (`harness.execution.authentication`).
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
"""The file in a fork server's folder with the name of the module that is being imported, or was imported last."""
LARGEST_MESSAGE = 16 << 20
"""Maximum bytes of one message of a trial. A document of a bundle has the same limit."""


class MessageError(ValueError):
    """A text is not a message. It can be truncated, if its writer died."""


@final
@dataclass(frozen=True)
class Import(JsonDataclass):
    """Request to the fork server to import modules. The response is `Imports`."""

    modules: tuple[str, ...]
    root: Path
    """The project's root."""


@final
@dataclass(frozen=True)
class Imports(JsonDataclass):
    """Response of the fork server: failed imports by module, and the SHA-256 of each source file of the project."""

    failures: Mapping[str, str]
    sources: Mapping[str, str]


@final
@dataclass(frozen=True)
class Split(JsonDataclass):
    """Request to the fork server to fork another server, with its imports. The response is `Splitting`."""

    name: str
    """The name of the new server's folder, within the first server's folder."""
    libraries: tuple[str, ...]
    """Modules, and names in modules, that the new server imports. Failures are ignored."""
    root: Path
    """The project's root."""


@final
@dataclass(frozen=True)
class Splitting(JsonDataclass):
    """The fork server has forked another server."""

    pid: int


@final
@dataclass(frozen=True)
class Start(JsonDataclass):
    """Request to the fork server to fork a trial."""

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
    """Import roots in `root` from which the trial imports the code itself; empty if the server has imported it."""
    around: Mapping[str, str] = field(default_factory=dict)
    """Entry points of context managers that a tool puts around the trial, each with its argument."""
    isolated: str = ""
    """The entry point of an `IsolatedSubject`, if the subject is isolated."""
    is_timed: bool = False
    """Whether the claim measures time. Then no other thread may run beside the subject."""
    patches: tuple[Patch, ...] = ()
    """Changes that make the subject a mutant. The trial imports the project again with them."""


@final
@dataclass(frozen=True)
class Started(JsonDataclass):
    """The supervisor has started the trial's process."""

    pid: int
    supervisor: int = 0
    """The sender's process id; 0 if unknown."""


@final
@dataclass(frozen=True)
class Read(JsonDataclass):
    """New source files of the project that the trial imported or read: SHA-256 by path."""

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
    """The supervisor's last message: exit status of the trial's process, or the signal that ended it."""

    code: int | None = None
    signal: str | None = None


Request = Import | Split | Start
Message = TrialReport | Started | Read | Ended | Lost | Exited
Received = Request | Imports | Splitting | Message
"""The messages that `decode` returns."""


def encode(message: Received) -> bytes:
    """Encode a message as one line of JSON without a newline. Non-finite numbers are tagged.

    Raises:
        TypeError: a value is not JSON.
    """
    return json.dumps([type(message).__name__, message.to_json()]).encode()


def decode(text: bytes) -> Received:
    """Reverse `encode`. All values are validated here, because a message can contain values from the subject.

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
    """Whether these are valid values of a step: few numbers with short names."""
    short = len(values) <= MOST_COLUMNS and all(len(name) <= _LONGEST_NAME for name in values)
    return short and all(type(value) in (int, float, bool, NoneType) for value in values.values())


def _is_resolved(values: JsonObject) -> bool:
    known = all(type(value) is _RESOLVED.get(name) for name, value in values.items())
    return known and _is_exact(values.get("steps", 0))


def _are_digests(sources: Mapping[str, str]) -> bool:
    return all(_SHA256.fullmatch(digest) for digest in sources.values())


MOST_COLUMNS = 1_000
"""Maximum values of a step."""
_LONGEST_NAME = 1_000
_EXACT = 1 << 53
"""The largest integer that all JSON readers represent exactly."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RESOLVED: Mapping[str, type] = {
    "device": str, "dtype": str, "backend": str, "steps": int, "contradiction": str, "unlike_files": str,
    "told_device": str, "allocated_bytes": int,
}  # fmt: skip
_ENDINGS = (EndingKind.COMPLETED, EndingKind.NOT_MEASURED, EndingKind.SUBJECT_FAULT, EndingKind.FALSIFIER_FAULT)
"""Endings that a trial reports itself. The harness observes the others."""
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
"""Checks of fields beyond their types."""
_KINDS: Mapping[str, type[Received]] = {kind.__name__: kind for kind in get_args(Received)}
