"""Known refutations in words."""

from __future__ import annotations

from harness.base.vocabulary import Verdict
from harness.contract.contract_annotations import Refutation, Result

__all__ = ["refutation_text"]


def refutation_text(refutation: Refutation, result: Result) -> str:
    """Return how a run compares with the refutation that its contract states."""
    if refutation.expects(result):
        return f"known since {refutation.since}: {refutation.explanation}"
    stated = f"the contract says since {refutation.since} that {', '.join(sorted(refutation.clauses))} fail"
    if result.verdict is Verdict.FAIL:
        other = "a mutant lived" if result.lived else f"these fail: {', '.join(sorted(result.failed)) or 'none'}"
        return f"new: {stated}; {other}"
    return f"new: {stated}; the verdict is {result.verdict}"
