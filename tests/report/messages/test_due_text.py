"""harness/report/messages/due_text.py: the claims that are due, those that are not, and the reasons."""

from __future__ import annotations

from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import Status, Verdict
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.claim_status import Cell, Note, Strength, Why
from harness.evidence.findings import Code, Detail, finding
from harness.report.messages import due_text
from harness.running.stale_selection import Because, Due
from tests.evidence.entries import claim, entry

ENTRY = entry()


def cell(status: Status, *notes: Note, cause: Reason | None = None) -> Cell:
    """A cell that one bundle decides."""
    return Cell(status, notes, Strength.FULL, ENTRY, ENTRY, 1, cause=cause)


def test_what_is_due_and_why(snapshot: SnapshotAssertion) -> None:
    """There is a line for each claim that runs, is FALSIFIED or cannot run here, and one with the counts."""
    changed = finding(Code.STALE_CONTRACT, Detail.CONTRACT_CHANGED)
    failed = cell(Status.FALSIFIED, Note(Why.REDUCED), cause=Reason(ReasonCode.UNPROVEN))
    found = Due(
        due=(
            (claim(), Because(ENTRY.device_class, None)),
            (claim(), Because(ENTRY.device_class, cell(Status.STALE, changed))),
            (claim(), Because(ENTRY.device_class, cell(Status.DISCHARGED), only_reduced=True)),
        ),
        covered=((claim(), cell(Status.DISCHARGED)),),
        falsified=((claim(), failed),),
        elsewhere=((claim(), "needs a GPU"),),
        unreadable=(),
    )
    assert list(due_text.lines(found)) == snapshot
    events = list(due_text.passed_over(found))
    assert [event.verdict for event in events] == [Verdict.FAIL, Verdict.PASS, Verdict.NOT_MEASURED]
    assert [event.reason for event in events] == snapshot
