"""Formats verified bundles, and violated or undecided clauses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from harness.base.vocabulary import Outcome, Verdict
from harness.contract import Contract
from harness.contract.bound import CLOSED, RULE
from harness.contract.clauses import ClauseResult
from harness.contract.model import CONTRADICTION, RESOLVED, UNLIKE_FILES, builtin_clauses
from harness.contract.reasons import ReasonCode
from harness.evidence.findings import NOT_ACCEPTED, Code, Verification
from harness.report.messages import bound_text, qualifiers, reason_text

__all__ = [
    "DOES_NOT_REPEAT",
    "IMPORTANCE",
    "KEY_LETTERS",
    "bundle_line",
    "bundle_totals",
    "exceeds",
    "undecided",
    "words",
]

DOES_NOT_REPEAT = "It does not repeat: run once more, the case no longer violated all of these clauses."
"""The text for a counterexample that does not repeat."""
IMPORTANCE = (
    Code.MUTANTS_SKIPPED,
    Code.OVERRIDDEN,
    Code.OTHER_SUBJECT,
    Code.STALE_CONTRACT,
    Code.STALE_FALSIFIER,
    Code.STALE_SUBJECT,
    Code.REDUCED_PROFILE,
    Code.WRONG_TARGET,
    Code.DIRTY_TREE,
    Code.COMMIT_NOT_IN_HISTORY,
    Code.CLOCK_AHEAD,
    Code.OTHER_HARNESS,
    Code.UNPLANTED,
    Code.UNKNOWN_KEY,
    Code.UNSIGNED,
)
"""The codes of remarks, the most important first."""
KEY_LETTERS = 12
"""Number of characters of a shortened key id or commit."""
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


def bundle_totals(verifications: Sequence[Verification]) -> str:
    """Return how many bundles are sound, and their verdicts."""
    sound = [verification for verification in verifications if verification.sound]
    counts = Counter(verification.verdict for verification in sound)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
    refused = sum(verification.standing == NOT_ACCEPTED for verification in sound)
    return (
        f"{len(sound)} sound, {len(verifications) - len(sound)} unsound; of the sound: {verdicts}"
        f"{f'; {refused} of them not accepted' if refused else ''}"
    )


def bundle_line(verification: Verification) -> str:
    """Return one line with a bundle's verdict, everything that qualifies it, and its path."""
    verdict = "" if verification.accepted else f" ({verification.verdict or 'no verdict'})"
    parts = [f"{verification.standing}{verdict}"]
    if verification.id is not None:
        parts += [verification.id, qualifiers.profile(verification.profile), str(verification.device)]
    if verification.verdict is not None:
        parts.append("proven" if verification.proven else qualifiers.UNPROVEN)
    if verification.signed_by:
        parts.append("signed by " + ", ".join(key[:KEY_LETTERS] for key in verification.signed_by))
    parts += qualifiers.overridden(verification.overrides)
    if verification.subject is not None:
        parts.append(qualifiers.another_subject(verification.subject))
    if verification.reason and verification.reason.code is not ReasonCode.UNPROVEN:
        parts.append(reason_text.of(verification.reason))
    return "  ".join([*parts, str(verification.path)])
