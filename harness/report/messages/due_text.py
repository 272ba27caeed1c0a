"""Formats why claims have their status and why they are due."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from harness.base.vocabulary import Verdict
from harness.evidence.claim_status import Cell, Note
from harness.evidence.findings import Finding
from harness.report.messages import finding_text, reason_text
from harness.report.messages.number_text import counted
from harness.running.events import ClaimPassedOver
from harness.running.stale_selection import Because, Due

__all__ = ["elsewhere_lines", "lines", "of_cell", "passed_over", "place"]


def of_cell(cell: Cell) -> str:
    """Return why a claim has its status on a class of device; empty if there is no reason."""
    return ": ".join(filter(None, ("; ".join(map(_note, cell.notes)), reason_text.of(cell.cause))))


def _note(note: Note | Finding) -> str:
    return finding_text.message(note) if isinstance(note, Finding) else note.why.template.format(note.value)


def lines(due: Due) -> Iterator[str]:
    """Yield lines on claims that run and why, claims that do not run, and FALSIFIED claims."""
    for contract, because in due.due:
        if because is not None:
            yield f"due: {contract.id}: {_because(because)}"
    for contract, cell in due.falsified:
        yield f"not due: {contract.id} is {_falsified(cell)}"
    yield from elsewhere_lines(due)
    total = len(due.due) + len(due.covered) + len(due.falsified) + len(due.elsewhere)
    counts = f"{len(due.covered) + len(due.falsified)} covered, {len(due.elsewhere)} not for this machine"
    claims = counted(total, "claim")
    nothing = "" if due.due else "nothing is stale: "
    yield f"{nothing}{claims}: {len(due.due)} due, {counts}"


def elsewhere_lines(due: Due) -> Iterator[str]:
    """Yield a line for each claim that this machine cannot run."""
    for contract, why in due.elsewhere:
        yield f"not for this machine: {contract.id}: {why}"


def passed_over(due: Due) -> Iterator[ClaimPassedOver]:
    """Yield the claims that do not run, as events for reports."""
    for contract, cell in due.falsified:
        yield ClaimPassedOver(contract.id, Verdict.FAIL, _falsified(cell), cell.is_news)
    for contract, cell in due.covered:
        why = f": {of_cell(cell)}" if cell.is_news else ""
        yield ClaimPassedOver(
            contract.id, Verdict.PASS, f"not due: {cell.status} by {place(cell.bundle)}{why}", cell.is_news
        )
    for contract, why in due.elsewhere:
        yield ClaimPassedOver(contract.id, Verdict.NOT_MEASURED, f"not for this machine: {why}")


def _falsified(cell: Cell) -> str:
    return f"FALSIFIED by {place(cell.bundle)}: {of_cell(cell)}"


def _because(because: Because) -> str:
    if because.cannot:
        return f"asked for, and cannot run here: {because.cannot}"
    if because.cell is None:
        return f"never run on {because.device}"
    if because.only_reduced:
        return "run in the reduced profile only, and full runs here"
    return f"{because.cell.status}: {of_cell(because.cell)}"


def place(bundle: Path | None) -> str:
    """Return the path of a bundle, relative to the working directory; empty for None."""
    return "" if bundle is None else os.path.relpath(bundle)
