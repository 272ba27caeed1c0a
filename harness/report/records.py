"""The records of a run as JSON, for machines."""

from __future__ import annotations

import sys
from pathlib import Path

from harness import strictjson
from harness.events import ClaimFinished, Event, Handler, RunFinished
from harness.verdict import Verdict

__all__ = ["handler"]


def handler(target: str) -> Handler:
    """A handler that writes one JSON document at the end of the run to a file, or to standard output for "-"."""
    bundles: dict[str, str | None] = {}

    def handle(event: Event) -> None:
        if isinstance(event, ClaimFinished):
            bundles[event.record.run] = None if event.bundle is None else str(event.bundle)
        elif isinstance(event, RunFinished):
            text = strictjson.dumps(_document(event, bundles), indent=2) + "\n"
            if target == "-":
                sys.stdout.write(text)
            else:
                Path(target).write_text(text, encoding="utf-8")

    return handle


def _document(event: RunFinished, bundles: dict[str, str | None]) -> dict[str, object]:
    verdicts = [record.verdict for record in event.records]
    return {
        "declared": event.declared,
        "evaluated": len(verdicts),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in Verdict},
        "seconds": round(event.seconds, 3),
        "interrupted": event.interrupted,
        "records": [{**record.to_json(), "bundle": bundles.get(record.run)} for record in event.records],
    }
