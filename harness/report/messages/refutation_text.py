"""Known refutations in words."""

from __future__ import annotations

from typing import Final

from harness.base.vocabulary import Verdict
from harness.contract.contract_annotations import Refutation, Result

__all__ = ["KNOWN", "NEW", "refutation_text", "standing"]

KNOWN: Final = "known"
NEW: Final = "new"
"""What a report says beside the verdict, of a run of which a contract's refutation speaks."""


def standing(refutation: Refutation | None, result: Result) -> str:
    """Return KNOWN, or NEW if the run differs from the refutation; empty without one."""
    return "" if refutation is None else KNOWN if refutation.expects(result) else NEW


def refutation_text(refutation: Refutation, result: Result) -> str:
    """Return how a run compares with the refutation that its contract states."""
    if refutation.expects(result):
        return f"known since {refutation.since}: {refutation.explanation}"
    stated = f"the contract says since {refutation.since} that these fail: {', '.join(sorted(refutation.clauses))}"
    if result.verdict is Verdict.FAIL:
        other = "a mutant lived" if result.lived else f"these fail: {', '.join(sorted(result.failed)) or 'none'}"
        return f"new: {stated}; {other}"
    return f"new: {stated}; the verdict is {result.verdict}"
