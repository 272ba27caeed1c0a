"""What each way to end means to the judge. The tables have every `EndingKind`, so none joins or leaves a set unseen."""

from __future__ import annotations

from itertools import product

import pytest

from harness.base.vocabulary import Outcome, Phase
from harness.contract.bound import Bound
from harness.contract.clauses import ClauseResult
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.judge import judge
from harness.judging.observation import Ending, EndingKind
from tests.contracts import contract_of, document, healthy, observe

CONTRACT = contract_of(document())
NAMES = {
    EndingKind.COMPLETED: "completed",
    EndingKind.NOT_MEASURED: "not measured",
    EndingKind.SUBJECT_FAULT: "subject fault",
    EndingKind.FALSIFIER_FAULT: "falsifier fault",
    EndingKind.TIMED_OUT: "timed out",
    EndingKind.SLOW: "slow",
    EndingKind.DIED: "died",
    EndingKind.KILLED: "killed",
    EndingKind.REFUTED: "refuted",
    EndingKind.INTERRUPTED: "interrupted",
    EndingKind.LOST: "lost",
    EndingKind.GARBLED: "garbled",
    EndingKind.CHANGED: "changed",
}
PROVISIONAL = {
    EndingKind.INTERRUPTED: "",
    EndingKind.GARBLED: "garbled",
    EndingKind.CHANGED: "changed",
    EndingKind.SLOW: "slow",
}
"""The endings after which measurements can be missing or of other code, with the place of the reason."""
NOBODYS = {EndingKind.INTERRUPTED, EndingKind.NOT_MEASURED}
"""The endings that say nothing about the code that ran."""
SUBJECTS = {
    *((EndingKind.SUBJECT_FAULT, phase) for phase in Phase),
    (EndingKind.TIMED_OUT, Phase.SUBJECT),
    (EndingKind.DIED, Phase.SUBJECT),
}
"""The endings that are the subject's fault."""
ENDINGS = list(product(EndingKind, Phase))


def test_the_tables_are_complete() -> None:
    """A new way to end must be put into the sets."""
    assert {kind: str(kind) for kind in EndingKind} == NAMES


@pytest.mark.parametrize("kind", list(EndingKind))
def test_which_endings_make_measurements_provisional(kind: EndingKind) -> None:
    """A violated clause stays FAIL, except after an ending that can have cost a later measurement."""
    judgment = judge(CONTRACT, observe(healthy(returned=2), ending=Ending(kind)))
    (lost,) = (clause for clause in judgment.clauses if clause.id == "nothing-lost")
    violated = Reason(ReasonCode.VIOLATED, text="items were lost or made up")
    if kind in PROVISIONAL:
        reason = Reason(ReasonCode.PROVISIONAL, PROVISIONAL[kind], cause=violated)
        assert (lost.outcome, lost.reason) == (Outcome.NOT_MEASURED, reason)
    else:
        assert (lost.outcome, lost.reason) == (Outcome.FAIL, violated)


@pytest.mark.parametrize(("kind", "phase"), ENDINGS)
def test_whose_fault_an_ending_is(kind: EndingKind, phase: Phase) -> None:
    """Only a completed trial passes, and only a fault of the subject fails."""
    completes = judge(CONTRACT, observe(healthy(), ending=Ending(kind, phase, "so it was"))).clauses[0]
    subjects = Outcome.FAIL if (kind, phase) in SUBJECTS else Outcome.NOT_MEASURED
    outcome = Outcome.PASS if kind is EndingKind.COMPLETED else subjects
    place = "" if kind in NOBODYS else str(phase)
    reason = None if kind is EndingKind.COMPLETED else Reason(ReasonCode(NAMES[kind]), place, "so it was")
    bound = Bound("const", "completed")
    assert completes == ClauseResult("subject.completes", outcome, NAMES[kind], bound, "", reason)
