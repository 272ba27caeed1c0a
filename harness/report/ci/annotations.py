"""Annotations for GitHub Actions while a run lasts: one a claim that is no PASS, at the line of its contract.

A refutation that the contract knows is a notice. A claim that holds although its contract states one is an error.
"""

from __future__ import annotations

import os

from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.report.ci import ci_cases
from harness.report.ci.ci_cases import Status
from harness.report.ci.workflow_commands import annotate
from harness.report.contract_file import UNKNOWN, ContractFile
from harness.running.events import ClaimFinished, ClaimPassedOver, ClaimPlanned, Event, Handler

__all__ = ["handlers"]


_LEVELS = {Status.NOT_MEASURED: "warning", Status.KNOWN: "notice"}


def handlers() -> list[Handler]:
    """Return the handler, if this process runs in GitHub Actions."""
    return [_handler()] if os.environ.get("GITHUB_ACTIONS") == "true" else []


def _handler() -> Handler:
    contracts: dict[str, Contract] = {}

    def handle(event: Event) -> None:
        if isinstance(event, ClaimPlanned):
            contracts[event.contract.id] = event.contract
        elif isinstance(event, ClaimFinished):
            record, contract = event.record, contracts.get(event.record.id)
            file = UNKNOWN if contract is None else ContractFile.of(contract)
            claim, *_ = ci_cases.of_record(record, file, None if contract is None else record.refutation(contract))
            if claim.status is not Status.PASS:
                level, lines = _LEVELS.get(claim.status, "error"), [claim.message, *claim.details]
                annotate(level, f"{record.verdict} {record.id}", lines, claim.file, claim.line)
        elif isinstance(event, ClaimPassedOver) and (event.is_news or event.verdict is Verdict.FAIL):
            word = "FALSIFIED" if event.verdict is Verdict.FAIL else "HOLDS"
            annotate("error" if event.is_news else "notice", f"{word} {event.id}", [event.reason])

    return handle
