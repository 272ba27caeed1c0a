"""Annotations for GitHub Actions while a run lasts: one a claim that is no PASS, at the line of its contract.

A refutation that the contract knows is a notice. A claim that holds although its contract states one is an error.
"""

from __future__ import annotations

import os

from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.report.terminal.workflow_commands import annotate
from harness.running.events import ClaimFinished, ClaimPassedOver, ClaimPlanned, Event, Handler

__all__ = ["handler"]


def handler() -> Handler | None:
    """Return what annotates the job, if this process runs in GitHub Actions."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return None
    from harness.tools.ci_reports import cases  # slow to import; every run asks for this handler

    contracts: dict[str, Contract] = {}

    def handle(event: Event) -> None:
        if isinstance(event, ClaimPlanned):
            contracts[event.contract.id] = event.contract
        elif isinstance(event, ClaimFinished):
            record = event.record
            claim, *_ = cases.of_run(record, contracts.get(record.id))
            if level := claim.status.level:
                title, lines = f"{record.verdict} {record.id}", [claim.message, *claim.details]
                annotate(level, title, lines, claim.file, claim.line)
        elif isinstance(event, ClaimPassedOver) and (event.is_news or event.verdict is Verdict.FAIL):
            word = "FALSIFIED" if event.verdict is Verdict.FAIL else "HOLDS"
            annotate("error" if event.is_news else "notice", f"{word} {event.id}", [event.reason])

    return handle
