"""A value that is not finite is one violation."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.base.device import Device
from harness.base.vocabulary import Outcome
from harness.contract.bound import Bound
from harness.contract.clauses import ClauseResult, clauses_of, is_finite, judge_schema
from harness.contract.reasons import Reason, ReasonCode
from harness.contract.rules import Scope, compile_rule
from harness.report.messages.not_finite import decisive, violations, wrong
from harness.tools.report_text import why
from tests.evidence.factory import claim_result

ERRORS = {"type": "array", "minItems": 1, "items": {"type": "number", "maximum": 1}}
SCHEMA = {"type": "object", "properties": {"errors": ERRORS, "loss": {"type": "number", "minimum": 0}}}
RULE = compile_rule("all-small", "self.errors.all(error, error < 1.0)", "too large")


def judged(**measurements: Any) -> list[ClauseResult]:
    """The clauses on a list and a number, and a rule on the list."""
    finite = {name: is_finite(value) for name, value in measurements.items()}
    scope = Scope([RULE], measurements, {}, Device("cpu", "a CPU"), finite)
    return [*judge_schema(list(clauses_of(SCHEMA)), measurements, finite), RULE.judge(scope)]


def places(clauses: list[ClauseResult]) -> list[tuple[str, str, tuple[str, ...]]]:
    """For each violation: its clause, the place of the value, and the clauses that it stands for."""
    return [(clause.id, clause.reason.place if clause.reason else "", others) for clause, others in violations(clauses)]


def test_one_nan_in_a_list_is_one_violation_with_its_index() -> None:
    """Every clause on the list fails, and the one on the item stands for them."""
    clauses = judged(errors=[0.5, math.nan, 0.5], loss=1.0)
    others = ("errors.type", "errors.minItems", "errors[].maximum", "all-small")
    assert places(clauses) == [("errors[].type", "errors[1]", others)]


def test_violations_of_other_values_stay_apart() -> None:
    """Each measurement with a NaN has its violation, and a finite value one for each clause."""
    assert [name for name, _, _ in places(judged(errors=[math.nan], loss=math.inf))] == ["errors[].type", "loss.type"]
    assert places(judged(errors=[2.0], loss=-1.0)) == [
        ("errors[].maximum", "errors[0]", ()),
        ("loss.minimum", "loss", ()),
        ("all-small", "", ()),
    ]


def test_reports_have_each_violation_once_and_sum_up_what_was_not_measured() -> None:
    """A NaN hides no other violation. Clauses that were not measured are listed only if nothing is violated."""
    clauses = judged(errors=[0.5, math.nan], loss=-1.0)
    unread = ClauseResult("late.type", Outcome.NOT_MEASURED, None, None)
    passed = ClauseResult("early.type", Outcome.PASS, 1, None)
    shown, others = wrong([unread, passed, *clauses])
    assert [clause.id for clause in shown] == ["errors[].type", "loss.minimum"]
    assert re.search(r"\b1\b.*\blate\.type\b", others)
    assert wrong([unread, passed]) == ([unread], "")
    assert wrong([passed]) == ([], "")


def test_the_reason_of_the_verdict_names_the_place(tmp_path: Path) -> None:
    """The record keeps the first clause that failed. Other reasons stay as they are."""
    result = claim_result(tmp_path)
    clauses = tuple(judged(errors=[0.5, math.nan], loss=1.0))
    assert clauses[0].reason is not None
    first = Reason(ReasonCode.CLAUSE, clauses=("errors.type",), cause=clauses[0].reason)
    record = replace(result.record, clauses=clauses, reason=first)
    shown = decisive(record)
    assert shown is not None
    assert (shown.clauses, shown.root.place) == (("errors[].type",), "errors[1]")
    assert "errors[1]" in why(record)[0]
    violated = ClauseResult("loss.minimum", Outcome.FAIL, -1.0, Bound("minimum", 0))
    other = Reason(ReasonCode.CLAUSE, clauses=("loss.minimum",), cause=Reason(ReasonCode.VIOLATED, "loss"))
    assert decisive(replace(record, clauses=(violated,), reason=other)) == other
