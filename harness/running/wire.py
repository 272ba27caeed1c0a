"""Events as lines of JSON, for a run whose reports another process writes.

print(wire.encode(event))                     # there
event = wire.decode(line, {contract.id: contract})      # here
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, Final

from harness.base import strictjson
from harness.base.device import Device
from harness.base.exceptions import described
from harness.base.json_dataclass import JsonDataclass
from harness.contract import Contract
from harness.running import events

__all__ = ["WireError", "decode", "encode", "handler"]

_PLANNED: Final = events.ClaimPlanned.__name__
_OTHERS: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        events.ClaimWaiting, events.TrialStarted, events.TrialPhase, events.TrialStep, events.TrialFinished,
        events.Remarked, events.ClaimFinished,
    )
}  # fmt: skip


class WireError(ValueError):
    """A line is not an event."""


def handler(stream: IO[str]) -> events.Handler:
    """A handler that writes a line for each event. The exit status of the process says how the run ended."""

    def write(event: events.Event) -> None:
        if type(event).__name__ in {_PLANNED, *_OTHERS}:
            print(encode(event), file=stream, flush=True)

    return write


def encode(event: events.Event) -> str:
    """An event as one line, without its end. A plan names its contract by the id."""
    if isinstance(event, events.ClaimPlanned):
        document = {**vars(event), "contract": event.contract.id, "device": event.device.to_json()}
    else:
        assert isinstance(event, JsonDataclass)
        document = event.to_json()
    return strictjson.dumps({"event": type(event).__name__, **document})


def decode(line: str, contracts: Mapping[str, Contract]) -> events.Event:
    """The inverse of `encode`. `contracts` are the contracts of the run, by id.

    Raises:
        WireError: the line is not an event.
    """
    try:
        document = strictjson.loads(line)
        kind = document.pop("event")
        if kind != _PLANNED:
            event: events.Event = _OTHERS[kind].from_json(document)
            return event
        contract, device = contracts[document["contract"]], Device.from_json(document["device"])
        mutants = tuple(document["mutants"])
        return events.ClaimPlanned(**{**document, "contract": contract, "device": device, "mutants": mutants})
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise WireError(f"{line[:100]!r} is not an event: {described(error)}") from error
