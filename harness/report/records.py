"""The records of a run as JSON, for machines."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from harness.base import strictjson
from harness.base.vocabulary import Verdict
from harness.run.events import ClaimFinished, ClaimPassedOver, Event, Handler, RunFinished

__all__ = ["handler"]


def handler(target: str) -> Handler:
    """A handler that writes one JSON document at the end of the run to a file, or to standard output for "-".

    Until then the file is empty: that of an earlier run must not be taken for this one's.

    Raises:
        OSError: at once, where the file cannot be written; and at the end of the run, where it no longer can.
    """
    bundles: dict[str, str | None] = {}
    passed_over: list[dict[str, object]] = []
    if target != "-":
        Path(target).write_bytes(b"")

    def handle(event: Event) -> None:
        if isinstance(event, ClaimFinished):
            bundles[event.record.run] = None if event.bundle is None else str(event.bundle)
        elif isinstance(event, ClaimPassedOver):
            passed_over.append(asdict(event))
        elif isinstance(event, RunFinished):
            document = {**_document(event, bundles, len(passed_over)), "passed_over": passed_over}
            if target == "-":
                # ASCII: the terminal's encoding may know no other letters, and no escape but JSON's own is JSON.
                sys.stdout.write(json.dumps(document, allow_nan=False, indent=2) + "\n")
                sys.stdout.flush()
            else:
                strictjson.dump(document, Path(target))

    return handle


def _document(event: RunFinished, bundles: dict[str, str | None], passed_over: int) -> dict[str, object]:
    verdicts = [record.verdict for record in event.records]
    return {
        "declared": event.declared + passed_over,
        "evaluated": len(verdicts),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in Verdict},
        "seconds": round(event.seconds, 3),
        "interrupted": event.interrupted,
        "records": [{**record.to_json(), "bundle": bundles.get(record.run)} for record in event.records],
    }
