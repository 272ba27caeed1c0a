"""Why a clause, a mutant or a claim has its outcome, as data. `harness.report.messages.reason_text` has its words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from harness.base.json_dataclass import JsonDataclass
from harness.base.vocabulary import Fate
from harness.contract.bound import Bound

__all__ = ["Reason", "ReasonCode"]


class ReasonCode(StrEnum):
    """The kind of a reason. Each code names the fields of `Reason` that go with it."""

    # of a clause
    VIOLATED = "violated"
    """The value at `place` violates the `bound`. For a rule: it is false, and `text` is the contract's message."""
    NOT_FINITE = "not finite"
    """The value at `place` holds NaN, an infinity or an integer that no double can hold."""
    MISSING = "missing"
    """There is no value at `place`. `text` says why, if the subject did not show it."""
    EMPTY = "empty"
    """The list or map at `place` is empty: nothing was measured."""
    UNDECLARED = "undeclared"
    """The contract does not declare the measurement `place`."""
    INTEGER_TOO_LARGE = "integer beyond 2^53"
    """A rule cannot read the value at `place`: it holds an integer that no double holds exactly."""
    NO_TEXT = "half of a surrogate pair"
    """A rule cannot read the value at `place`: it holds half a surrogate pair."""
    TOO_COSTLY = "too costly"
    """The value at `place` is so large that the clause would cost more than is left (see `harness.contract.cost`)."""
    CANNOT_BE_EVALUATED = "cannot be evaluated"
    """The CEL engine raised `text`."""
    NOT_BOOLEAN = "not boolean"
    """A rule gives neither true nor false, but `text`."""
    NOT_READ_BACK = "not read back"
    """The process did not read back the `place` (device, dtype, …) that ran."""
    ANOTHER_RAN = "another ran"
    """The process read back `value` for `place`, and `bound` was requested."""
    CONTRADICTION = "contradiction"
    """The subject made two statements, in `text`, that cannot both be true."""
    NOT_ASKED = "not asked"
    """The `place` (allocator or driver) was not asked whether the process was on the GPU; `text` says why."""
    NOT_ON_THE_GPU = "not on the GPU"
    """The `place` (allocator or driver) never saw the process on the GPU."""
    NOT_ON_THIS_CASE = "not on this case"
    """In a replay, the falsifier did not measure what the clause reads."""
    NOT_TRIED = "not tried"
    """In a replay, the falsifier did not try the case."""
    PROVISIONAL = "provisional"
    """The clause failed for the reason `cause`, but the trial was interrupted, or ended as `place` says."""
    # how a trial ended (`harness.judging.observation.EndingKind`): in the code of `place`, for the reason `text`
    NOT_MEASURED = "not measured"
    SUBJECT_FAULT = "subject fault"
    FALSIFIER_FAULT = "falsifier fault"
    TIMED_OUT = "timed out"
    SLOW = "slow"
    DIED = "died"
    KILLED = "killed"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    GARBLED = "garbled"
    CHANGED = "changed"
    # of a mutant, or of a claim
    CLAUSE = "clause"
    """The clause in `clauses` decided it, for the reason `cause`."""
    # of a mutant
    PASSED = "passed"
    """The mutant passed every clause."""
    OTHER_CLAUSES = "other clauses"
    """It failed on `clauses`, but not on `missed`, which the contract names."""
    CUT_SHORT = "cut short"
    """It failed on `clauses`; its trial ended for the reason `cause` before `missed` could be judged."""
    SKIPPED = "skipped"
    """The user asked for no mutants."""
    NEEDLESS = "needless"
    """The subject did not pass, so that nothing depends on the mutant."""
    REQUIREMENT = "requirement"
    """This machine lacks `text`."""
    NOT_JUDGED = "not judged"
    """It violates `clauses`, which the profile `place` does not judge."""
    NOTHING_RAN = "nothing ran"
    """No trial of the claim was started, because of `text`."""
    NO_OBSERVATION = "no observation"
    """The bundle lacks its observation."""
    NOT_LISTED = "not listed"
    """The record does not list it."""
    # of a claim
    MUTANT = "mutant"
    """The `mutant`, of this `fate`, decided it, for the reason `cause`."""
    NO_MUTANT = "no mutant"
    """No mutant could run here; `cause` is the first one's reason."""
    UNPROVEN = "unproven"
    """The mutants were skipped."""
    UNSEALED = "unsealed"
    """The bundle could not be written: `text`."""
    JOB_ENDED = "job ended"
    """The job of a cluster ended as `text` says. `cause` is the reason of what it had measured."""


@dataclass(frozen=True, slots=True)
class Reason(JsonDataclass):
    """A code with its data. Empty fields do not apply. `text` is for people; no decision depends on it."""

    LEFT_OUT: ClassVar = (None, "", ())

    code: ReasonCode
    place: str = ""
    text: str = ""
    """Words from outside the harness: of an exception, the operating system, a contract or a falsifier."""
    bound: Bound | None = None
    value: Any = None
    clauses: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    mutant: str = ""
    fate: Fate | None = None
    cause: Reason | None = None

    def __str__(self) -> str:
        """The code and its data on one line, for messages that contain a reason."""
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
