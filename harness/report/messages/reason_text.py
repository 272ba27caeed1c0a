"""Reasons in words: the sentence for every code of `harness.contract.reasons`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.base.vocabulary import Fate
from harness.contract.bound import CLOSED
from harness.contract.reasons import Reason, ReasonCode

__all__ = ["marked", "of", "stated"]


def of(reason: Reason | None) -> str:
    """Return a reason in words, without the full stop; empty for None."""
    return "" if reason is None else _SENTENCES[reason.code](reason)


def marked(reason: Reason | None) -> str:
    """Return a reason in words, with the source of words that `harness verify` cannot derive in brackets."""
    return " ".join(filter(None, (of(reason), f"[{stated(reason)}]" if stated(reason) else "")))


def stated(reason: Reason | None) -> str:
    """Return the source of words that follow from no measurement, such as the run; empty without such words."""
    root = None if reason is None else reason.root
    return "" if root is None or not root.text else _STATED.get(root.code, "")


def _violated(reason: Reason) -> str:
    if reason.bound is None:
        return reason.text
    wrong = "has undeclared properties" if reason.bound.keyword == CLOSED else f"violates {reason.bound}"
    return f"{reason.place} {wrong}"


def _ended(reason: Reason) -> str:
    if reason.place == "start":
        return f"{reason.code} at its start: {reason.text}"
    return f"{reason.code} in the {reason.place}'s code: {reason.text}"


def _listed(clauses: Sequence[str]) -> str:
    return ", ".join(clauses)


_NOT_ASKED = {"allocator": "the allocator was not read", "driver": "the driver was not asked"}
_NOT_SEEN = {
    "allocator": "the process never allocated memory on the GPU",
    "driver": "the driver never listed the process on the GPU",
}
_MUTANTS = {Fate.INCONCLUSIVE: "is inconclusive", Fate.INTERRUPTED: "was not run"}


def _mutant(reason: Reason) -> str:
    fate = _MUTANTS.get(reason.fate, str(reason.fate)) if reason.fate is not None else ""
    return f"mutant {reason.mutant} {fate}: {of(reason.cause)}"


_STATED = {
    **dict.fromkeys(
        (ReasonCode.SUBJECT_FAULT, ReasonCode.CONTRADICTION, ReasonCode.MISSING, ReasonCode.NOT_READ_BACK),
        "stated by the subject",
    ),
    **dict.fromkeys((ReasonCode.FALSIFIER_FAULT, ReasonCode.NOT_MEASURED, ReasonCode.GARBLED), "stated by the trial"),
    **dict.fromkeys(
        (
            ReasonCode.TIMED_OUT,
            ReasonCode.SLOW,
            ReasonCode.DIED,
            ReasonCode.KILLED,
            ReasonCode.INTERRUPTED,
            ReasonCode.LOST,
            ReasonCode.CHANGED,
            ReasonCode.NOT_ASKED,
            ReasonCode.CANNOT_BE_EVALUATED,
            ReasonCode.NOT_BOOLEAN,
            ReasonCode.REQUIREMENT,
            ReasonCode.NOTHING_RAN,
            ReasonCode.UNSEALED,
            ReasonCode.JOB_ENDED,
        ),
        "stated by the run",
    ),
}
"""Who stated the text of a reason. The text of every other code is the contract's, or there is none."""
_BEFALLEN = {"": "interrupted", str(ReasonCode.CHANGED): "a source changed", str(ReasonCode.SLOW): "it was too slow"}
_SENTENCES: dict[ReasonCode, Callable[[Reason], str]] = {
    ReasonCode.VIOLATED: _violated,
    ReasonCode.NOT_FINITE: lambda one: f"{one.place} is not finite",
    ReasonCode.MISSING: lambda one: f"{one.place} was not measured{f': {one.text}' if one.text else ''}",
    ReasonCode.EMPTY: lambda one: f"{one.place} is empty: nothing was measured",
    ReasonCode.UNDECLARED: lambda one: f"{one.place} is not declared in the contract",
    ReasonCode.INTEGER_TOO_LARGE: lambda one: (
        f"{one.place} holds an integer beyond 2^53, which no double holds exactly"
    ),
    ReasonCode.NO_TEXT: lambda one: f"{one.place} holds half of a surrogate pair, which is no text",
    ReasonCode.TOO_COSTLY: lambda one: f"{one.place} is too large to be judged by this clause",
    ReasonCode.CANNOT_BE_EVALUATED: lambda one: f"the rule cannot be evaluated: {one.text}",
    ReasonCode.NOT_BOOLEAN: lambda one: f"the rule gave neither true nor false: {one.text}",
    ReasonCode.NOT_READ_BACK: lambda one: (
        f"the {one.place} that ran {'were' if one.place.endswith('s') else 'was'} not read back"
        f"{f'; only the output says that it was {one.text}' if one.text else ''}"
    ),
    ReasonCode.CONTRADICTION: lambda one: (
        f"the output contradicts {'the files of the run' if one.place else 'itself'}: {one.text}"
    ),
    ReasonCode.ANOTHER_RAN: lambda one: f"requested {one.bound and one.bound.limit!r}, but {one.value!r} ran",
    ReasonCode.NOT_ASKED: lambda one: one.text or _NOT_ASKED.get(one.place, "it was not asked"),
    ReasonCode.NOT_ON_THE_GPU: lambda one: _NOT_SEEN.get(one.place, "the process was never seen on the GPU"),
    ReasonCode.NOT_ON_THIS_CASE: lambda _: "the falsifier did not measure it on this case",
    ReasonCode.NOT_TRIED: lambda _: "the falsifier did not try the case: it searches no more",
    ReasonCode.PROVISIONAL: lambda one: (
        f"{_BEFALLEN.get(one.place, 'a message was lost')}; until then: {of(one.cause)}"
    ),
    ReasonCode.NOT_MEASURED: lambda one: f"not measured: {one.text}",
    ReasonCode.SUBJECT_FAULT: _ended,
    ReasonCode.FALSIFIER_FAULT: _ended,
    ReasonCode.TIMED_OUT: _ended,
    ReasonCode.SLOW: lambda one: f"slow, and not refuted: {one.text}",
    ReasonCode.DIED: _ended,
    ReasonCode.KILLED: _ended,
    ReasonCode.INTERRUPTED: lambda one: one.text or "the run was interrupted",
    ReasonCode.LOST: _ended,
    ReasonCode.CHANGED: lambda one: f"{one.text} changed while the trial ran; run it again",
    ReasonCode.GARBLED: lambda one: f"a message of the trial cannot be read: {one.text}",
    ReasonCode.CLAUSE: lambda one: f"{_listed(one.clauses)}: {of(one.cause)}",
    ReasonCode.PASSED: lambda _: "it passed every clause",
    ReasonCode.OTHER_CLAUSES: lambda one: f"it failed on {_listed(one.clauses)}, but not on {_listed(one.missed)}",
    ReasonCode.CUT_SHORT: lambda one: (
        f"it failed on {_listed(one.clauses)}, but before {_listed(one.missed)} could be judged: {of(one.cause)}"
    ),
    ReasonCode.SKIPPED: lambda _: "mutants were skipped (--no-mutants)",
    ReasonCode.NEEDLESS: lambda _: "not needed, because the subject did not pass; --all-mutants runs all",
    ReasonCode.REQUIREMENT: lambda one: one.text,
    ReasonCode.NOT_JUDGED: lambda one: f"violates {_listed(one.clauses)}, which the {one.place} profile does not judge",
    ReasonCode.NOTHING_RAN: lambda one: one.text,
    ReasonCode.NO_OBSERVATION: lambda _: "its observation is missing",
    ReasonCode.NOT_LISTED: lambda _: "the record does not list it",
    ReasonCode.MUTANT: _mutant,
    ReasonCode.NO_MUTANT: lambda one: f"no mutant could run here: {of(one.cause) or 'there is none'}",
    ReasonCode.UNPROVEN: lambda _: "the mutants were skipped",
    ReasonCode.UNSEALED: lambda one: f"the bundle could not be written: {one.text}",
    ReasonCode.JOB_ENDED: lambda one: "; ".join(filter(None, (one.text, of(one.cause)))),
}
