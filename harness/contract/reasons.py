"""The reason for the outcome of a clause, a mutant or a claim: a code with data, and the template of a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from harness.base.json_dataclass import JsonDataclass
from harness.base.vocabulary import Fate
from harness.contract.bound import Bound

__all__ = ["Reason", "ReasonCode", "Worded"]

_ENDED = "{code} {where}: {text}"
"""Template for a trial that ended in the code of its subject or falsifier, or at its start."""


class Worded(StrEnum):
    """Codes with templates of sentences. A template uses the fields that apply to its code."""

    template: str
    stated_by: str

    def __new__(cls, code: str, template: str = "", stated_by: str = "") -> Self:
        """Args:
        stated_by: who stated the text of the sentence, if it does not come from a measurement.
        """
        member = str.__new__(cls, code)
        member._value_, member.template, member.stated_by = code, template, stated_by
        return member


class ReasonCode(Worded):
    """The kind of a reason."""

    # of a clause
    VIOLATED = "violated", "{place} violates the bound: {bound}"
    """The value at `place` violates the `bound`. For a rule: it is false, and `text` is the contract's message."""
    NOT_FINITE = "not finite", "{place} is not finite"
    MISSING = "missing", "{place} was not measured{because}", "subject"
    """There is no value at `place`. `text` states why, if the subject does not expose it."""
    EMPTY = "empty", "{place} is empty: nothing was measured"
    UNDECLARED = "undeclared", "{place} is not declared in the contract"
    INTEGER_TOO_LARGE = "integer beyond 2^53", "{place} holds an integer beyond 2^53, which no double holds exactly"
    NO_TEXT = "half of a surrogate pair", "{place} holds half of a surrogate pair, which is no text"
    TOO_COSTLY = "too costly", "{place} is too large to be judged by this clause"
    """The value at `place` is too large for the remaining allowance (see `harness.contract.cost`)."""
    CANNOT_BE_EVALUATED = "cannot be evaluated", "the rule cannot be evaluated: {text}", "run"
    """The CEL engine raised `text`."""
    NOT_BOOLEAN = "not boolean", "the rule gave neither true nor false: {text}", "run"
    NOT_READ_BACK = "not read back", "the {place} that ran {was} not read back{said}", "subject"
    """The process did not read back the `place` (device, dtype, …) that ran."""
    ANOTHER_RAN = "another ran", "requested {requested!r}, but {value!r} ran"
    """The process read back `value` for `place`, and `bound` was requested."""
    CONTRADICTION = "contradiction", "the output contradicts the files of the run: {text}", "subject"
    """The subject made two statements, in `text`, that cannot both be true."""
    NOT_ASKED = "not asked", "it was not asked", "run"
    """The `place` (allocator or driver) was not queried for GPU use; `text` states why."""
    NOT_ON_THE_GPU = "not on the GPU", "the process was never seen on the GPU"
    """The `place` (allocator or driver) reports no GPU use by the process."""
    NOT_ON_THIS_CASE = "not on this case", "the falsifier did not measure it on this case"
    NOT_TRIED = "not tried", "the falsifier did not try the case: it searches no more"
    PROVISIONAL = "provisional", "a message was lost; until then: {cause}"
    """The clause failed for the reason `cause`, but the trial was interrupted, or ended as `place` says."""
    # how a trial ended (`harness.judging.observation.EndingKind`): in the code of `place`, for the reason `text`
    NOT_MEASURED = "not measured", "not measured: {text}", "trial"
    SUBJECT_FAULT = "subject fault", _ENDED, "subject"
    FALSIFIER_FAULT = "falsifier fault", _ENDED, "trial"
    TIMED_OUT = "timed out", _ENDED, "run"
    SLOW = "slow", "slow, and not refuted: {text}", "run"
    DIED = "died", _ENDED, "run"
    KILLED = "killed", _ENDED, "run"
    REFUTED = "refuted", "the trial ended as soon as it was refuted"
    INTERRUPTED = "interrupted", "the run was interrupted", "run"
    LOST = "lost", _ENDED, "run"
    GARBLED = "garbled", "a message of the trial cannot be read: {text}", "trial"
    CHANGED = "changed", "{text} changed while the trial ran; run it again", "run"
    # of a mutant, or of a claim
    CLAUSE = "clause", "{clauses}: {cause}"
    # of a mutant
    PASSED = "passed", "it passed every clause"
    OTHER_CLAUSES = "other clauses", "it failed on {clauses}, but not on {missed}"
    CUT_SHORT = "cut short", "it failed on {clauses}, but before {missed} could be judged: {cause}"
    SKIPPED = "skipped", "mutants were skipped (--no-mutants)"
    NEEDLESS = "needless", "not needed, because the subject did not pass; --all-mutants runs all"
    REQUIREMENT = "requirement", "{text}", "run"
    """This machine lacks `text`."""
    NOT_JUDGED = "not judged", "violates {clauses}, which the {place} profile does not judge"
    NOTHING_RAN = "nothing ran", "{text}", "run"
    """No trial of the claim was started, because of `text`."""
    NO_OBSERVATION = "no observation", "its observation is missing"
    NOT_LISTED = "not listed", "the record does not list it"
    # of a claim
    MUTANT = "mutant", "mutant {mutant} {fate}: {cause}"
    NO_MUTANT = "no mutant", "no mutant could run here: {first_cause}"
    UNPROVEN = "unproven", "the mutants were skipped"
    UNSEALED = "unsealed", "the bundle could not be written: {text}", "run"
    JOB_ENDED = "job ended", "{text_and_cause}", "run"
    """A cluster job ended early, as `text` states. `cause` is the reason for its measurements so far."""


@dataclass(frozen=True, slots=True)
class Reason(JsonDataclass):
    """A code with its data. Empty fields do not apply. `text` is for people; no decision depends on it."""

    LEFT_OUT: ClassVar = (None, "", ())

    code: ReasonCode
    place: str = ""
    text: str = ""
    """Text from outside the harness: from an exception, the operating system, a contract or a falsifier."""
    bound: Bound | None = None
    value: Any = None
    clauses: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    mutant: str = ""
    fate: Fate | None = None
    cause: Reason | None = None

    def __str__(self) -> str:
        """Return the code and its data on one line, for exceptions."""
        about = ", ".join(filter(None, (self.mutant, *self.clauses, self.place)))
        return ": ".join(
            filter(None, (f"{self.code} ({about})" if about else self.code, self.text, str(self.cause or "")))
        )

    @property
    def root(self) -> Reason:
        """The innermost cause."""
        return self if self.cause is None else self.cause.root

    @property
    def codes(self) -> tuple[ReasonCode, ...]:
        """The code, and the codes of its causes."""
        return (self.code, *(self.cause.codes if self.cause is not None else ()))
