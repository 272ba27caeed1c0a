"""Groups the clauses that fail for the same non-finite value into one violation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harness.base.shortening import first
from harness.base.vocabulary import Outcome
from harness.contract.clauses import ClauseResult
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.record import Record
from harness.report.messages.number_text import counted

__all__ = ["decisive", "violations", "wrong"]


def violations(clauses: Iterable[ClauseResult]) -> list[tuple[ClauseResult, tuple[str, ...]]]:
    """Return the failed clauses, each with the ids of those that fail for the same value.

    Only clauses that read a non-finite value are grouped, by measurement. The clause that names the location in the
    measurement, such as `errors[17]`, represents the group.
    """
    groups: dict[str, list[ClauseResult]] = {}
    for clause in clauses:
        if clause.outcome is Outcome.FAIL:
            place = _place(clause)
            groups.setdefault(re.split(r"[.\[]", place)[0] if place else f" {clause.id}", []).append(clause)
    causes = []
    for group in groups.values():
        nearest = max(group, key=lambda clause: len(_place(clause)))
        causes.append((nearest, tuple(clause.id for clause in group if clause is not nearest)))
    return causes


def wrong(clauses: Sequence[ClauseResult]) -> tuple[list[ClauseResult], str]:
    """Return the clauses that decide, and a text that sums up the others that did not pass; empty if there are none.

    For each violation, one clause decides. Without a violation, the clauses that were not measured decide.
    """
    violated = [clause for clause, _ in violations(clauses)]
    unmeasured = [clause for clause in clauses if clause.outcome is Outcome.NOT_MEASURED]
    if not violated or not unmeasured:
        return violated or unmeasured, ""
    names = first([clause.id for clause in unmeasured], 3)
    return violated, f"{counted(len(unmeasured), 'clause')} not measured: {names}"


def decisive(record: Record) -> Reason | None:
    """Return the reason of a verdict; for a non-finite value, that of the clause that names its location."""
    reason = record.reason
    if reason is None or reason.code is not ReasonCode.CLAUSE or reason.root.code is not ReasonCode.NOT_FINITE:
        return reason
    for clause, others in violations(record.clauses):
        if set(reason.clauses) & {clause.id, *others}:
            return Reason(ReasonCode.CLAUSE, clauses=(clause.id,), cause=clause.reason)
    return reason


def _place(clause: ClauseResult) -> str:
    """Return the location of the non-finite value; empty if the clause failed for another reason."""
    reason = clause.reason
    return reason.place.removeprefix("self.") if reason and reason.code is ReasonCode.NOT_FINITE else ""
