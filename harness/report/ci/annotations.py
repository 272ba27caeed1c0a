"""Annotations for GitHub Actions while a run lasts: one a claim that is no PASS, at the line of its contract."""

from __future__ import annotations

import os

from harness.base.vocabulary import Verdict
from harness.report.ci import ci_cases
from harness.report.ci.workflow_commands import annotate
from harness.report.contract_file import UNKNOWN, ContractFile
from harness.running.events import ClaimFinished, ClaimPassedOver, ClaimPlanned, Event, Handler

__all__ = ["handlers"]


def handlers() -> list[Handler]:
    """Return the handler, if this process runs in GitHub Actions."""
    return [_handler()] if os.environ.get("GITHUB_ACTIONS") == "true" else []


def _handler() -> Handler:
    contracts: dict[str, ContractFile] = {}

    def handle(event: Event) -> None:
        if isinstance(event, ClaimPlanned):
            contracts[event.contract.id] = ContractFile.of(event.contract)
        elif isinstance(event, ClaimFinished) and event.record.verdict is not Verdict.PASS:
            record = event.record
            claim, *_ = ci_cases.of_record(record, contracts.get(record.id, UNKNOWN))
            level = "warning" if record.verdict is Verdict.NOT_MEASURED else "error"
            lines = [claim.message, *claim.details]
            annotate(level, f"{record.verdict} {record.id}", lines, claim.file, claim.line)
        elif isinstance(event, ClaimPassedOver) and event.verdict is Verdict.FAIL:
            annotate("error", f"FALSIFIED {event.id}", [event.reason])

    return handle
