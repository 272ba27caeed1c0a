"""Reasons in words: a template for every code of `harness.contract.reasons`."""

from __future__ import annotations

from harness.base.vocabulary import Fate
from harness.contract.bound import CLOSED
from harness.contract.reasons import Reason, ReasonCode

__all__ = ["marked", "of", "stated"]


def of(reason: Reason | None) -> str:
    """Return a reason in words, without the full stop; empty for None."""
    if reason is None:
        return ""
    cause = of(reason.cause)
    return _template(reason).format(
        one=reason,
        cause=cause,
        first_cause=cause or "there is none",
        because=f": {reason.text}" if reason.text else "",
        clauses=", ".join(reason.clauses),
        missed=", ".join(reason.missed),
        requested=reason.bound and reason.bound.limit,
        fate=_FATES.get(reason.fate, reason.fate) if reason.fate else "",
        text_and_cause="; ".join(filter(None, (reason.text, cause))),
    )


def marked(reason: Reason | None) -> str:
    """Return a reason in words, with the source of words that `harness verify` cannot derive in brackets."""
    return " ".join(filter(None, (of(reason), f"[{stated(reason)}]" if stated(reason) else "")))


def stated(reason: Reason | None) -> str:
    """Return the source of words that follow from no measurement, such as the run; empty without such words."""
    root = None if reason is None else reason.root
    if root is None or not root.text or root.code not in _STATED:
        return ""
    return f"stated by the {_STATED[root.code]}"


def _template(reason: Reason) -> str:
    """Return the template of a reason: that of its code and place, else that of its code."""
    match reason:
        case Reason(code=ReasonCode.VIOLATED, bound=None):
            return "{one.text}"
        case Reason(code=ReasonCode.VIOLATED, bound=bound) if bound and bound.keyword == CLOSED:
            return "{one.place} has undeclared properties"
        case Reason(code=ReasonCode.NOT_READ_BACK, place=place, text=text):
            said = "; only the output says that it was {one.text}" if text else f" by trial.resolve({place}=…)"
            return f"the {{one.place}} that ran {'were' if place.endswith('s') else 'was'} not read back{said}"
        case Reason(code=ReasonCode.NOT_ASKED | ReasonCode.INTERRUPTED, text=text) if text:
            return "{one.text}"
    return _AT_A_PLACE.get((reason.code, reason.place), _TEMPLATES[reason.code])


_FATES = {Fate.INCONCLUSIVE: "is inconclusive", Fate.INTERRUPTED: "was not run"}
_STATED = {
    **dict.fromkeys(
        (ReasonCode.SUBJECT_FAULT, ReasonCode.CONTRADICTION, ReasonCode.MISSING, ReasonCode.NOT_READ_BACK), "subject"
    ),
    **dict.fromkeys((ReasonCode.FALSIFIER_FAULT, ReasonCode.NOT_MEASURED, ReasonCode.GARBLED), "trial"),
    **dict.fromkeys((ReasonCode.TIMED_OUT, ReasonCode.SLOW, ReasonCode.DIED, ReasonCode.KILLED), "run"),
    **dict.fromkeys((ReasonCode.INTERRUPTED, ReasonCode.LOST, ReasonCode.CHANGED, ReasonCode.NOT_ASKED), "run"),
    **dict.fromkeys((ReasonCode.CANNOT_BE_EVALUATED, ReasonCode.NOT_BOOLEAN, ReasonCode.REQUIREMENT), "run"),
    **dict.fromkeys((ReasonCode.NOTHING_RAN, ReasonCode.UNSEALED, ReasonCode.JOB_ENDED), "run"),
}
"""Who stated the text of a reason. The text of every other code is the contract's, or there is none."""
_ENDED = (
    ReasonCode.SUBJECT_FAULT,
    ReasonCode.FALSIFIER_FAULT,
    ReasonCode.TIMED_OUT,
    ReasonCode.DIED,
    ReasonCode.KILLED,
    ReasonCode.LOST,
)
_AT_A_PLACE = {
    (ReasonCode.CONTRADICTION, ""): "the output contradicts itself: {one.text}",
    (ReasonCode.NOT_ASKED, "allocator"): "the allocator was not read",
    (ReasonCode.NOT_ASKED, "driver"): "the driver was not asked",
    (ReasonCode.NOT_ON_THE_GPU, "allocator"): "the process never allocated memory on the GPU",
    (ReasonCode.NOT_ON_THE_GPU, "driver"): "the driver never listed the process on the GPU",
    (ReasonCode.PROVISIONAL, ""): "interrupted; until then: {cause}",
    (ReasonCode.PROVISIONAL, str(ReasonCode.CHANGED)): "a source changed; until then: {cause}",
    (ReasonCode.PROVISIONAL, str(ReasonCode.SLOW)): "it was too slow; until then: {cause}",
    **{(code, "start"): "{one.code} at its start: {one.text}" for code in _ENDED},
}
_TEMPLATES = {
    ReasonCode.VIOLATED: "{one.place} violates {one.bound}",
    ReasonCode.NOT_FINITE: "{one.place} is not finite",
    ReasonCode.MISSING: "{one.place} was not measured{because}",
    ReasonCode.EMPTY: "{one.place} is empty: nothing was measured",
    ReasonCode.UNDECLARED: "{one.place} is not declared in the contract",
    ReasonCode.INTEGER_TOO_LARGE: "{one.place} holds an integer beyond 2^53, which no double holds exactly",
    ReasonCode.NO_TEXT: "{one.place} holds half of a surrogate pair, which is no text",
    ReasonCode.TOO_COSTLY: "{one.place} is too large to be judged by this clause",
    ReasonCode.CANNOT_BE_EVALUATED: "the rule cannot be evaluated: {one.text}",
    ReasonCode.NOT_BOOLEAN: "the rule gave neither true nor false: {one.text}",
    ReasonCode.CONTRADICTION: "the output contradicts the files of the run: {one.text}",
    ReasonCode.ANOTHER_RAN: "requested {requested!r}, but {one.value!r} ran",
    ReasonCode.NOT_ASKED: "it was not asked",
    ReasonCode.NOT_ON_THE_GPU: "the process was never seen on the GPU",
    ReasonCode.NOT_ON_THIS_CASE: "the falsifier did not measure it on this case",
    ReasonCode.NOT_TRIED: "the falsifier did not try the case: it searches no more",
    ReasonCode.PROVISIONAL: "a message was lost; until then: {cause}",
    ReasonCode.NOT_MEASURED: "not measured: {one.text}",
    **dict.fromkeys(_ENDED, "{one.code} in the {one.place}'s code: {one.text}"),
    ReasonCode.SLOW: "slow, and not refuted: {one.text}",
    ReasonCode.INTERRUPTED: "the run was interrupted",
    ReasonCode.CHANGED: "{one.text} changed while the trial ran; run it again",
    ReasonCode.GARBLED: "a message of the trial cannot be read: {one.text}",
    ReasonCode.CLAUSE: "{clauses}: {cause}",
    ReasonCode.PASSED: "it passed every clause",
    ReasonCode.OTHER_CLAUSES: "it failed on {clauses}, but not on {missed}",
    ReasonCode.CUT_SHORT: "it failed on {clauses}, but before {missed} could be judged: {cause}",
    ReasonCode.SKIPPED: "mutants were skipped (--no-mutants)",
    ReasonCode.NEEDLESS: "not needed, because the subject did not pass; --all-mutants runs all",
    ReasonCode.REQUIREMENT: "{one.text}",
    ReasonCode.NOT_JUDGED: "violates {clauses}, which the {one.place} profile does not judge",
    ReasonCode.NOTHING_RAN: "{one.text}",
    ReasonCode.NO_OBSERVATION: "its observation is missing",
    ReasonCode.NOT_LISTED: "the record does not list it",
    ReasonCode.MUTANT: "mutant {one.mutant} {fate}: {cause}",
    ReasonCode.NO_MUTANT: "no mutant could run here: {first_cause}",
    ReasonCode.UNPROVEN: "the mutants were skipped",
    ReasonCode.UNSEALED: "the bundle could not be written: {one.text}",
    ReasonCode.JOB_ENDED: "{text_and_cause}",
}
