"""Short qualifiers of a verdict: profile, mutants, overridden parameters, another subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.base.shortening import cut, first
from harness.base.vocabulary import Fate, Verdict
from harness.contract.contract_annotations import Refutation, Result
from harness.judging.record import Record

__all__ = [
    "ISOLATED",
    "KNOWN",
    "NEW",
    "UNPROVEN",
    "another_subject",
    "changed",
    "mutants",
    "overridden",
    "profile",
    "refutation_text",
    "standing",
]

UNPROVEN = "UNPROVEN"
"""Qualifies a PASS without killed mutants."""
ISOLATED = "subjects isolated"
_MOST_CHANGED = 4
_LONGEST = 80


def profile(name: str | None) -> str:
    """Return the size of the run."""
    return f"{name} profile"


def mutants(record: Record) -> str:
    """Return the numbers of mutants by fate."""
    if record.mutants_skipped:
        return "mutants skipped"
    if not record.mutants:
        return "no mutants"
    others = [f"{count} {fate}" for fate, count in record.fates.items() if fate is not Fate.KILLED]
    return ", ".join([f"{record.fates[Fate.KILLED]} of {len(record.mutants)} mutants killed", *others])


def changed(overrides: Mapping[str, Any]) -> str:
    """Return the first overridden parameters with their values."""
    return first([cut(f"{name}={value}", _LONGEST) for name, value in overrides.items()], _MOST_CHANGED)


def overridden(overrides: Mapping[str, Any] | None) -> list[str]:
    """Return the qualifier for overridden parameters; empty if there are none."""
    return [f"parameters overridden: {changed(overrides)}"] if overrides else []


def another_subject(name: str) -> str:
    """Return the qualifier for a subject other than the contract's."""
    return f"another subject: {name}"


KNOWN: Final = "known"
NEW: Final = "new"
"""Qualifiers of a verdict if the contract lists a known refutation for such a run."""


def standing(refutation: Refutation | None, result: Result) -> str:
    """Return KNOWN, or NEW if the run differs from the refutation; empty without one."""
    return "" if refutation is None else KNOWN if refutation.expects(result) else NEW


def refutation_text(refutation: Refutation, result: Result) -> str:
    """Compare a run with the known refutation of its contract."""
    if refutation.expects(result):
        return f"known since {refutation.since}: {refutation.explanation}"
    stated = f"the contract says since {refutation.since} that these fail: {', '.join(sorted(refutation.clauses))}"
    if result.verdict is Verdict.FAIL:
        other = "a mutant lived" if result.lived else f"these fail: {', '.join(sorted(result.failed)) or 'none'}"
        return f"new: {stated}; {other}"
    return f"new: {stated}; the verdict is {result.verdict}"
