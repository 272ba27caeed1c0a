"""Formats violated and undecided clauses."""

from __future__ import annotations

import re

from harness.base.vocabulary import Outcome
from harness.contract import Contract
from harness.contract.bound import CLOSED, RULE
from harness.contract.clauses import ClauseResult
from harness.contract.model import CONTRADICTION, RESOLVED, UNLIKE_FILES, builtin_clauses
from harness.contract.reasons import ReasonCode
from harness.report.messages import bound_text, reason_text

__all__ = ["DOES_NOT_REPEAT", "exceeds", "undecided", "words"]

DOES_NOT_REPEAT = "It does not repeat: run once more, the case no longer violated all of these clauses."
"""The text for a counterexample that does not repeat."""
_BUILTIN = {*builtin_clauses(RESOLVED), CONTRADICTION, UNLIKE_FILES}


def words(clause: ClauseResult, contract: Contract | None) -> str:
    """Return the contract's text for a violated clause: a rule's message, or the description of the measurement.

    If the clause failed for another reason, such as a NaN, return that reason.
    """
    if not exceeds(clause):
        return reason_text.marked(clause.reason)
    properties = {} if contract is None else contract.observation["properties"]
    about = properties.get(re.split(r"[.\[]", clause.id)[0], {}).get("description", "")
    return str(about).removesuffix(".")


def exceeds(clause: ClauseResult) -> bool:
    """Whether value and bound explain the violation, because the value is beyond the bound of a keyword."""
    reason = clause.reason
    return reason is not None and reason.code is ReasonCode.VIOLATED and reason.bound is not None and not reason.text


def undecided(clause: ClauseResult) -> str:
    """Return the bound of a clause that was not measured; empty for a rule, a type and a built-in clause."""
    if clause.outcome is not Outcome.NOT_MEASURED or clause.bound is None or clause.id in _BUILTIN:
        return ""
    return "" if clause.bound.keyword in (RULE, CLOSED, "type") else bound_text.of(clause.bound, clause.unit)
