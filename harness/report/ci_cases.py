"""What came of a claim, case by case: a clause, a mutant, and where no case shows it, the verdict.

Programs that read test reports know of cases that passed, failed or were skipped, and count. So the cases of a claim
are made here once, for JUnit, CTRF and SARIF alike, and never is a run green of which nothing is known: a verdict that
no case shows has one of its own, a bundle that is unsound is one case, and no bundle at all is one too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from harness.base.vocabulary import Fate, Verdict
from harness.contract.clauses import ClauseResult
from harness.judging.record import MutantRecord, Record
from harness.report import bound_text, number_text, reason_text
from harness.report.escaping import printable

if TYPE_CHECKING:
    from harness.report.bundle_results import BundleResult

__all__ = ["NOTHING", "Case", "Kind", "Status", "of_bundle", "of_record"]


class Kind(StrEnum):
    """What a case is about."""

    CLAUSE = "clause"
    MUTANT = "mutant"
    VERDICT = "verdict"
    BUNDLE = "bundle"


class Status(StrEnum):
    """What became of a case."""

    PASS = "PASS"
    """A clause held, or a mutant was killed."""
    FAIL = "FAIL"
    """A clause was violated."""
    VOID = "VOID"
    """A mutant lived, or died of something else: what passed means nothing."""
    UNSOUND = "UNSOUND"
    """The bundle is no evidence, or there is none."""
    NOT_ACCEPTED = "NOT_ACCEPTED"
    """The bundle is sound, and has a remark that whoever asked does not accept."""
    NOT_MEASURED = "NOT_MEASURED"
    """The machine or the falsifier was in the way, or an interruption."""
    NOT_RUN = "NOT_RUN"
    """A mutant that this machine cannot run, or that was not asked for; a clause on what the profile omits."""


@dataclass(frozen=True)
class Case:
    """One case. Its texts are printable."""

    claim: str
    name: str
    kind: Kind
    status: Status
    message: str
    """Why; of a clause, also the measured value and its bound."""
    seconds: float = 0.0


NOTHING = Case("harness report", "nothing ran", Kind.BUNDLE, Status.UNSOUND, "there is no bundle: nothing was measured")
"""What a report says that has nothing to say."""


def of_record(record: Record) -> list[Case]:
    """The cases of a sound record."""
    cases = [_clause(record, clause, position) for position, clause in enumerate(record.clauses)]
    cases += [_unjudged(record, clause) for clause in record.unjudged]
    cases += [_mutant(record, mutant) for mutant in record.mutants]
    if not cases or not any(case.status in _shows(record) for case in cases):
        reason = reason_text.of(record.reason) or f"the verdict is {record.verdict}"
        cases.append(Case(record.id, "verdict", Kind.VERDICT, Status(record.verdict), printable(reason)))
    return cases


def of_bundle(bundle: BundleResult) -> list[Case]:
    """The cases of a bundle; of one that is unsound or not accepted just that it is."""
    if bundle.record is not None:
        return of_record(bundle.record)
    return [Case(bundle.name, "bundle", Kind.BUNDLE, Status(bundle.verification.standing), bundle.problem)]


def _shows(record: Record) -> Sequence[Status]:
    """The statuses of which one must occur, so that the verdict can be read off the cases."""
    return tuple(Status) if record.verdict is Verdict.PASS else (Status(record.verdict),)


def _clause(record: Record, clause: ClauseResult, position: int) -> Case:
    measured = (
        f"measured {number_text.value(clause.value, clause.unit)}, bound {bound_text.of(clause.bound, clause.unit)}"
    )
    text = f"{reason_text.of(clause.reason)} ({measured})" if clause.reason else measured
    # All clauses come of one trial; its time is told once, so that sums are right.
    seconds = record.trial_seconds if position == 0 else 0.0
    status = Status(clause.outcome)
    return Case(record.id, printable(clause.id), Kind.CLAUSE, status, printable(text), seconds)


def _unjudged(record: Record, clause: str) -> Case:
    text = f"the {record.profile} profile does not measure this"
    return Case(record.id, printable(clause), Kind.CLAUSE, Status.NOT_RUN, printable(text))


def _mutant(record: Record, mutant: MutantRecord) -> Case:
    text = f"{mutant.fate}: {reason_text.of(mutant.reason)} ({mutant.defect})"
    name = printable(f"mutant {mutant.id}")
    return Case(record.id, name, Kind.MUTANT, _FATES[mutant.fate], printable(text), mutant.seconds or 0.0)


_FATES = {
    Fate.KILLED: Status.PASS,
    Fate.SURVIVED: Status.VOID,
    Fate.MISATTRIBUTED: Status.VOID,
    Fate.INCONCLUSIVE: Status.NOT_MEASURED,
    Fate.NOT_RUN: Status.NOT_RUN,
    Fate.INTERRUPTED: Status.NOT_MEASURED,
}
