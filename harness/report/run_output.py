"""What `harness run` prints: a live view on a terminal, plain lines in a pipe, and the records as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from harness.base import strictjson
from harness.base.vocabulary import Verdict
from harness.report.escaping import printable
from harness.report.run_text import (
    claim_lines,
    interrupted_text,
    plan_line,
    step_text,
    totals_text,
    traceback_lines,
    trial_text,
)
from harness.run.events import (
    SUBJECT,
    ClaimFinished,
    ClaimPassedOver,
    ClaimPlanned,
    ClaimWaiting,
    Event,
    Handler,
    Remarked,
    RunFinished,
    TrialFinished,
    TrialStarted,
    TrialStep,
)

__all__ = ["PlainLines", "json_handler", "terminal_handler"]

_STEP_LINES = 5
"""Lines with steps that a trial prints in a pipe."""


def terminal_handler(stream: IO[str], verbose: bool) -> Handler:
    """Return a live view for a terminal, plain lines for any other stream."""
    if stream.isatty():
        from harness.report.live import Live

        return Live(stream, verbose)
    return PlainLines(lambda text: print(printable(text), file=stream, flush=True), verbose)


@dataclass
class PlainLines:
    """Prints the events of a run as plain lines."""

    write: Callable[[str], None]
    verbose: bool
    _steps: dict[str, int | None] = field(default_factory=dict)
    _passed_over: int = 0

    def __call__(self, event: Event) -> None:
        """Print one event."""
        match event:
            case ClaimPassedOver():
                self._passed_over += 1
            case ClaimPlanned():
                self.write(f"{event.contract.id}  {event.contract.title}")
                if not event.obstacle:
                    self.write(f"  {plan_line(event)}")
            case ClaimWaiting():
                self.write(f"  waiting for {', '.join(event.holders)}")
            case TrialStarted():
                self._steps[event.trial] = event.steps
                if self.verbose:
                    self.write(f"  {event.trial}  started")
            case TrialStep() if self._is_shown(event):
                self.write(f"  {event.trial}  {step_text(event, self._steps[event.trial])}")
            case TrialFinished():
                self.write(f"  {event.trial}  {trial_text(event)}")
                for line in traceback_lines(event, self.verbose):
                    self.write(line)
            case Remarked():
                self.write(f"  remark: {event.text}")
            case ClaimFinished():
                for line in claim_lines(event, self.verbose):
                    self.write(line)
            case RunFinished():
                verdicts = [str(record.verdict) for record in event.records]
                self.write(totals_text(event.declared + self._passed_over, verdicts))
                if event.interrupted:
                    self.write(interrupted_text(event))
            case _:
                pass

    def _is_shown(self, event: TrialStep) -> bool:
        total = self._steps.get(event.trial)
        every = max(1, (total or 50) // _STEP_LINES)
        if (
            total and event.step > total
        ):  # an external trainer made more steps than requested: print them ever more rarely
            every = total * 2 ** ((event.step - 1) // total).bit_length()
        return self.verbose or (event.trial == SUBJECT and (event.step % every == 0 or event.step == total))


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
            document = {
                **_document(event, bundles, len(passed_over)),
                "passed_over": passed_over,
                "remarks": remarks,
            }
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
        "declared": event.declared + passed_over,
        "evaluated": len(verdicts),
        "verdicts": {verdict: verdicts.count(verdict) for verdict in Verdict},
        "seconds": round(event.seconds, 3),
        "interrupted": event.interrupted,
        "records": [{**record.to_json(), "bundle": bundles.get(record.run)} for record in event.records],
    }
