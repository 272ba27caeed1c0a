"""The output of `harness run`: lines, a live view on a terminal, and the records as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO

from harness.base import strictjson
from harness.base.plugins import plugins
from harness.base.redaction import redactor
from harness.base.vocabulary import Outcome, Verdict
from harness.evidence.index import Entry
from harness.judging.record import Record
from harness.report.escaping import printable
from harness.report.terminal.printing import Line, styled
from harness.report.terminal.run_lines import USUAL, Lines, Shown
from harness.running.events import ClaimFinished, ClaimPassedOver, Event, Handler, Remarked, RunFinished

__all__ = ["json_handler", "terminal_handler"]


def terminal_handler(stream: IO[str], shown: Shown = USUAL, earlier: Callable[[], Iterable[Entry]] = tuple) -> Handler:
    """Return the view of a tool for a terminal, plain lines for any other stream.

    Args:
        earlier: reads the evidence of earlier runs, for estimates. Only a terminal shows them.
    """
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        for plugin in plugins("harness.views").values():
            view: Handler = plugin.load()(stream, shown, earlier)
            return view
    colourful = bool(os.environ.get("FORCE_COLOR")) and not os.environ.get("NO_COLOR")

    def write(line: Line) -> None:
        text, style = printable(line[0]), line[1]
        print(styled(text, style) if colourful and style else text, file=stream, flush=True)

    return Lines(write, shown)


def json_handler(target: str) -> Handler:
    """Return a handler that writes one JSON document at the end of the run: to a file, or to standard output for "-".

    Until then the file is empty, so that an older file is not mistaken for this run's.

    Raises:
        OSError: the file cannot be written, now or at the end of the run.
    """
    bundles: dict[str, str | None] = {}
    passed_over: list[dict[str, object]] = []
    remarks: list[dict[str, object]] = []
    if target != "-":
        Path(target).write_bytes(b"")

    def handle(event: Event) -> None:
        if isinstance(event, ClaimFinished):
            bundles[event.record.run] = None if event.bundle is None else str(event.bundle)
        elif isinstance(event, ClaimPassedOver):
            passed_over.append(asdict(event))
        elif isinstance(event, Remarked):
            remarks.append(asdict(event))
        elif isinstance(event, RunFinished):
            document = redactor().mask_json(
                {**_document(event, bundles, len(passed_over)), "passed_over": passed_over, "remarks": remarks}
            )
            if target == "-":
                # ASCII, because the terminal's encoding may lack other letters.
                sys.stdout.write(json.dumps(document, allow_nan=False, indent=2) + "\n")
                sys.stdout.flush()
            else:
                strictjson.dump(document, Path(target))

    return handle


def _document(event: RunFinished, bundles: dict[str, str | None], passed_over: int) -> dict[str, object]:
    verdicts = [record.verdict for record in event.records]
    return {
        "format": 1,
        "declared": event.declared + passed_over,
        "evaluated": len(verdicts),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in Verdict},
        "seconds": round(event.seconds, 3),
        "interrupted": event.interrupted,
        "records": [
            {**_violated_first(record).to_json(), "bundle": bundles.get(record.run)} for record in event.records
        ],
    }


def _violated_first(record: Record) -> Record:
    """Return the record with violated clauses first."""
    order = (Outcome.FAIL, Outcome.PASS, Outcome.NOT_MEASURED)
    return replace(record, clauses=tuple(sorted(record.clauses, key=lambda clause: order.index(clause.outcome))))
