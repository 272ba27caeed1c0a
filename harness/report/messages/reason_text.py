"""Formats reasons."""

from __future__ import annotations

from harness.base.vocabulary import Fate
from harness.contract.reasons import Reason, ReasonCode
from harness.report.messages import bound_text

__all__ = ["marked", "of", "stated"]


def of(reason: Reason | None) -> str:
    """Format a reason without the full stop; empty for None."""
    if reason is None:
        return ""
    cause, text, place = of(reason.cause), reason.text, reason.place
    return _template(reason).format(
        code=reason.code,
        place=place,
        where="at its start" if place == "start" else f"in the {place}'s code",
        text=text,
        bound=bound_text.of(reason.bound),
        value=reason.value,
        mutant=reason.mutant,
        cause=cause,
        first_cause=cause or "there is none",
        because=f": {text}" if text else "",
        clauses=", ".join(reason.clauses),
        missed=", ".join(reason.missed),
        requested=reason.bound and reason.bound.limit,
        fate=_FATES.get(reason.fate, reason.fate) if reason.fate else "",
        text_and_cause="; ".join(filter(None, (text, cause))),
        was="were" if place.endswith("s") else "was",
        said=f"; only the output says that it was {text}" if text else _how_to_show(place),
    )


def _how_to_show(name: str) -> str:
    outside = "; of a trainer in another process, a checkpoint of each step shows them" if name == "steps" else ""
    return f" by trial.resolve({name}=…){outside}"


def marked(reason: Reason | None) -> str:
    """Format a reason, with the source of a text that `harness verify` cannot derive in brackets."""
    return " ".join(filter(None, (of(reason), f"[{stated(reason)}]" if stated(reason) else "")))


def stated(reason: Reason | None) -> str:
    """Return the source of a text that does not follow from a measurement, such as the run; empty without one."""
    root = None if reason is None else reason.root
    if root is None or not root.text or not root.code.stated_by:
        return ""
    return f"stated by the {root.code.stated_by}"


def _template(reason: Reason) -> str:
    """Return the template of a reason: that of its code and place, else that of its code."""
    match reason:
        case Reason(code=ReasonCode.VIOLATED, bound=None):
            return "{text}"
        case Reason(code=ReasonCode.NOT_ASKED | ReasonCode.INTERRUPTED, text=text) if text:
            return "{text}"
    return _AT_A_PLACE.get((reason.code, reason.place), reason.code.template)


_FATES = {Fate.INCONCLUSIVE: "is inconclusive", Fate.INTERRUPTED: "was not run"}
_AT_A_PLACE = {
    (ReasonCode.CONTRADICTION, ""): "the output contradicts itself: {text}",
    (ReasonCode.NOT_ASKED, "allocator"): "the allocator was not read",
    (ReasonCode.NOT_ASKED, "driver"): "the driver was not asked",
    (ReasonCode.NOT_ON_THE_GPU, "allocator"): "the process never allocated memory on the GPU",
    (ReasonCode.NOT_ON_THE_GPU, "driver"): "the driver never listed the process on the GPU",
    (ReasonCode.PROVISIONAL, ""): "interrupted; until then: {cause}",
    (ReasonCode.PROVISIONAL, str(ReasonCode.CHANGED)): "a source changed; until then: {cause}",
    (ReasonCode.PROVISIONAL, str(ReasonCode.SLOW)): "it was too slow; until then: {cause}",
}
