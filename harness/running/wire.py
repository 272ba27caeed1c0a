"""Events as lines of JSON, for a run whose reports another process writes.

print(wire.encode(event))                     # there
event = wire.decode(line, {contract.id: contract})      # here
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from harness.base import strictjson
from harness.base.device import Device
from harness.base.vocabulary import Fate
from harness.contract import Contract
from harness.contract.reasons import Reason
from harness.judging.judge import Judgment
from harness.judging.record import Record
from harness.judging.verdict import MutantOutcome
from harness.running import events

__all__ = ["WireError", "decode", "encode", "handler"]

_KINDS = {
    kind.__name__: kind
    for kind in (
        events.ClaimPlanned,
        events.ClaimWaiting,
        events.TrialStarted,
        events.TrialPhase,
        events.TrialStep,
        events.TrialFinished,
        events.Remarked,
        events.ClaimFinished,
    )
}


class WireError(ValueError):
    """A line is not an event."""


def handler(stream: IO[str]) -> events.Handler:
    """A handler that writes a line for each event. The exit status of the process says how the run ended."""

    def write(event: events.Event) -> None:
        if type(event).__name__ in _KINDS:
            print(encode(event), file=stream, flush=True)

    return write


def encode(event: events.Event) -> str:
    """An event as one line, without its end."""
    shallow = {field.name: getattr(event, field.name) for field in fields(event)}
    match event:
        case events.ClaimPlanned():
            shallow |= {"contract": event.contract.id, "device": event.device.to_json()}
        case events.TrialFinished():
            shallow["judgment"] = event.judgment.to_json()
            shallow["mutant"] = event.mutant and {
                **vars(event.mutant),
                "reason": event.mutant.reason and event.mutant.reason.to_json(),
            }
        case events.ClaimFinished():
            shallow |= {"record": event.record.to_json(), "bundle": event.bundle and str(event.bundle)}
    return strictjson.dumps(strictjson.tag_nonfinite({"event": type(event).__name__, **shallow}))


def decode(line: str, contracts: Mapping[str, Contract]) -> events.Event:
    """The inverse of `encode`. `contracts` are the contracts of the run, by id.

    Raises:
        WireError: the line is not an event.
    """
    try:
        document = strictjson.loads(line)
        kind = _KINDS[document.pop("event")]
        if kind is events.ClaimFinished:  # Record.from_json untags the record
            return events.ClaimFinished(
                Record.from_json(document["record"]),
                document["bundle"] and Path(document["bundle"]),
                strictjson.untag_nonfinite(document["ratios"]),
                document["unsealed"],
            )
        return kind(**_revived(kind, strictjson.untag_nonfinite(document), contracts))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise WireError(f"{line[:100]!r} is no event: {type(error).__name__}: {error}") from error


def _revived(kind: type[Any], plain: dict[str, Any], contracts: Mapping[str, Contract]) -> dict[str, Any]:
    if kind is events.ClaimPlanned:
        plain |= {"contract": contracts[plain["contract"]], "device": Device.from_json(plain["device"])}
    if kind is events.TrialFinished:
        plain["judgment"] = Judgment.from_json(plain["judgment"])
        if (mutant := plain["mutant"]) is not None:
            failed = tuple(mutant["failed"])
            plain["mutant"] = MutantOutcome(
                mutant["id"], Fate(mutant["fate"]), Reason.from_json(mutant["reason"]), failed, mutant["values"]
            )
    return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
