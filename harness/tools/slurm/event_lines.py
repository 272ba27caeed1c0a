"""Events as lines of JSON: a job writes them, and the process that submitted it reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

from harness.base import strictjson
from harness.base.device import Device
from harness.base.json_dataclass import JsonDataclass
from harness.contract import Contract
from harness.running.events import (
    ClaimEnded,
    ClaimFinished,
    ClaimPlanned,
    ClaimWaiting,
    Event,
    Handler,
    Remarked,
    TrialFinished,
    TrialPhase,
    TrialStarted,
    TrialStep,
)

__all__ = ["NoEventError", "decode", "encode", "lines_to"]


class NoEventError(ValueError):
    """A line is not an event."""


_LONGEST_LINE = 4 << 20
_IN_LINES: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        ClaimPlanned, ClaimWaiting, TrialStarted, TrialPhase, TrialStep, Remarked, ClaimEnded,
    )
}  # fmt: skip
"""The events of a claim. None has a result: its reader takes results from the bundle."""


@dataclass(frozen=True)
class _Plan(JsonDataclass):
    """A plan on its line: `ClaimPlanned` with the id of the contract."""

    contract: str
    profile: str
    reason: str
    device: Device
    mutants: tuple[str, ...]
    obstacle: str
    limit_seconds: float
    pace: float


def lines_to(stream: IO[str]) -> Handler:
    """A handler that writes a line for each event, for a run whose reports another process writes."""

    def write(event: Event) -> None:
        if isinstance(event, ClaimFinished):
            event = ClaimEnded.of(event)
        elif isinstance(event, TrialFinished):
            event = TrialPhase(event.id, event.trial, "ended")
        if type(event).__name__ in _IN_LINES:
            print(encode(event), file=stream, flush=True)

    return write


def encode(event: Event) -> str:
    """An event as a line of JSON, without its end. A plan names its contract by the id."""
    if isinstance(event, ClaimPlanned):
        document = _Plan(**{**vars(event), "contract": event.contract.id}).to_json()
    else:
        assert isinstance(event, JsonDataclass)
        document = event.to_json()
    return strictjson.dumps({"event": type(event).__name__, **document})


def decode(line: str, contracts: Mapping[str, Contract]) -> Event:
    """The inverse of `encode`. `contracts` are the contracts of the run, by id.

    Raises:
        NoEventError: the line is not an event, or has more than 4 Mi characters; parsing takes 20 bytes for each.
    """
    if len(line) > _LONGEST_LINE:
        raise NoEventError(f"{line[:100]!r} is not an event: it has {len(line)} characters; {_LONGEST_LINE} are read")
    try:
        document = strictjson.loads(line)
        kind = _IN_LINES[document.pop("event")]
        if kind is not ClaimPlanned:
            event: Event = kind.from_json(document)
            return event
        plan = _Plan.from_json(document)
        return ClaimPlanned(**{**vars(plan), "contract": contracts[plan.contract]})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoEventError(f"{line[:100]!r} is not an event: {type(error).__name__}: {error}") from error
