"""The results of a clause, a mutant, a claim and a command."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, StrEnum

__all__ = ["ExitStatus", "Fate", "Outcome", "Phase", "SearchEnd", "Status", "Verdict", "exit_status"]


class Outcome(StrEnum):
    """The result of one clause, and of an observation as a whole."""

    PASS = "PASS"
    FAIL = "FAIL"
    NOT_MEASURED = "NOT_MEASURED"


class Verdict(StrEnum):
    """The result of a claim: its subject's outcome, or VOID if a mutant shows that a PASS means nothing."""

    PASS = "PASS"
    FAIL = "FAIL"
    NOT_MEASURED = "NOT_MEASURED"
    VOID = "VOID"


class Status(StrEnum):
    """The result of all evidence of a claim (see `harness.evidence.claim_status`)."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Status:
        """Args:
        meaning: one line for a legend.
        """
        status = str.__new__(cls, word)
        status._value_, status.meaning = word, meaning
        return status

    DISCHARGED = "DISCHARGED", "a proven PASS of the full profile on the claim's hardware, with the present code"
    PARTIAL = "PARTIAL", "a proven PASS with the present code, on other hardware, of the reduced profile or a stand-in"
    FALSIFIED = "FALSIFIED", "a FAIL with the present code"
    STALE = "STALE", "there is evidence, but contract, falsifier or subject has changed since"
    UNRUN = "UNRUN", "no run counts for or against the claim"


class SearchEnd(StrEnum):
    """When a search for a refuting case ends."""

    REFUTED = "refuted"
    """At the first case or measurement that refutes the claim."""
    TRIED = "tried"
    """After all cases."""
    SIMPLEST = "simplest"
    """After all cases, and after shrinking a refuting case."""


class Fate(StrEnum):
    """The result of a mutant."""

    KILLED = "killed"
    """It failed on every clause that the contract names."""
    SURVIVED = "survived"
    """It passed: the falsifier cannot detect this defect."""
    MISATTRIBUTED = "misattributed"
    """It failed, but not on every clause that the contract names."""
    INCONCLUSIVE = "inconclusive"
    """Its trial measured too little to decide."""
    NOT_RUN = "not run"
    """This machine lacks what the mutant requires, or mutants were skipped."""
    INTERRUPTED = "interrupted"
    """The run was interrupted before the mutant's turn; this machine could have run it."""

    @property
    def has_run(self) -> bool:
        """Whether a mutant of this fate had a trial."""
        return self not in (Fate.NOT_RUN, Fate.INTERRUPTED)


class Phase(StrEnum):
    """Whose code a trial runs, or ran last."""

    START = "start"
    SUBJECT = "subject"
    FALSIFIER = "falsifier"


class ExitStatus(IntEnum):
    """The exit status of every command."""

    PASS = 0
    FAIL = 1
    REFUSED = 2
    NOT_MEASURED = 3
    VOID = 4
    INTERRUPTED = 130
    UNREAD = 141
    """The reader closed the output. This is the status of a command that SIGPIPE ended; Python ignores that signal."""


def exit_status(verdicts: Iterable[Verdict]) -> ExitStatus:
    """Return the exit status of a command that reached these verdicts.

    FAIL outranks VOID, and VOID outranks NOT_MEASURED. Without any verdict the status is NOT_MEASURED.
    """
    seen = set(verdicts)
    if Verdict.FAIL in seen:
        return ExitStatus.FAIL
    if Verdict.VOID in seen:
        return ExitStatus.VOID
    if Verdict.NOT_MEASURED in seen or not seen:
        return ExitStatus.NOT_MEASURED
    return ExitStatus.PASS
