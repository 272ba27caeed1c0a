"""Reasons as data and on one line."""

from __future__ import annotations

import pytest

from harness.base.vocabulary import Fate, Outcome
from harness.contract.bound import Bound
from harness.contract.clauses import ClauseResult
from harness.contract.reasons import Reason, ReasonCode

CAUSE = Reason(ReasonCode.VIOLATED, "a[0]", bound=Bound("maximum", 2.0), value=[3])
FULL = Reason(
    ReasonCode.MUTANT, "place", "text", clauses=("b", "c"), missed=("d",), mutant="one", fate=Fate.SURVIVED, cause=CAUSE
)
CASES = [
    (Reason(ReasonCode.PASSED), {"code": ReasonCode.PASSED}, str(ReasonCode.PASSED)),
    (
        CAUSE,
        {"code": ReasonCode.VIOLATED, "place": "a[0]", "bound": CAUSE.bound and CAUSE.bound.to_json(), "value": [3]},
        f"{ReasonCode.VIOLATED} (a[0])",
    ),
    (
        FULL,
        {
            "code": ReasonCode.MUTANT, "place": "place", "text": "text", "clauses": ["b", "c"], "missed": ["d"],
            "mutant": "one", "fate": Fate.SURVIVED, "cause": CAUSE.to_json(),
        },
        f"{ReasonCode.MUTANT} (one, b, c, place): text: {ReasonCode.VIOLATED} (a[0])",
    ),
    (
        Reason(ReasonCode.MISSING, text="words", value=0),
        {"code": ReasonCode.MISSING, "text": "words", "value": 0},
        f"{ReasonCode.MISSING}: words",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "document", "line"), CASES)
def test_a_reason_keeps_what_applies(reason: Reason, document: dict[str, object], line: str) -> None:
    """A reason keeps the fields that apply: as JSON, from JSON, and on one line."""
    assert reason.to_json() == document
    assert Reason.from_json(document) == reason
    assert str(reason) == line


def test_the_causes_of_a_reason() -> None:
    """The innermost cause is the root."""
    outer = Reason(ReasonCode.CLAUSE, cause=FULL)
    assert (outer.root, FULL.root, CAUSE.root) == (CAUSE, CAUSE, CAUSE)
    assert outer.codes == (ReasonCode.CLAUSE, ReasonCode.MUTANT, ReasonCode.VIOLATED)
    assert CAUSE.codes == (ReasonCode.VIOLATED,)


@pytest.mark.parametrize(
    "result",
    [
        ClauseResult("a.maximum", Outcome.FAIL, 3.0, Bound("maximum", 2.0), "nats", CAUSE),
        ClauseResult("a.maximum", Outcome.PASS, 1.0, Bound("maximum", 2.0)),
        ClauseResult("gone", Outcome.NOT_MEASURED, reason=Reason(ReasonCode.MISSING, "a")),
    ],
)
def test_the_result_of_a_clause_comes_back_from_json(result: ClauseResult) -> None:
    document = result.to_json()
    assert document == {
        "id": result.id,
        "outcome": result.outcome.value,
        "value": result.value,
        "bound": None if result.bound is None else result.bound.to_json(),
        "unit": result.unit,
        "reason": None if result.reason is None else result.reason.to_json(),
    }
    assert ClauseResult.from_json(document) == result
