"""The result of a claim as test cases, for JUnit, CTRF and SARIF: one for each clause and each mutant.

Readers of these formats only count the cases that passed, failed or were skipped. A run without a result must not look
green, so there are further cases: one for a verdict that no other case shows, one for each unsound bundle, and one if
there is no bundle.
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
    """What a case describes."""

    CLAUSE = "clause"
    MUTANT = "mutant"
    VERDICT = "verdict"
    BUNDLE = "bundle"


class Status(StrEnum):
    """The result of a case."""

    PASS = "PASS"
    """A clause held, or a mutant was killed."""
    FAIL = "FAIL"
    """A clause was violated."""
    VOID = "VOID"
    """A mutant survived, or failed on other clauses only. The PASS of the subject means nothing."""
    UNSOUND = "UNSOUND"
    """The bundle is not evidence, or there is no bundle."""
    NOT_ACCEPTED = "NOT_ACCEPTED"
    """The bundle is sound, but has a remark that you asked to refuse."""
    NOT_MEASURED = "NOT_MEASURED"
    """The machine, the falsifier or an interruption prevented the measurement."""
    NOT_RUN = "NOT_RUN"
    """A mutant that cannot run on this machine or was skipped, or a clause on measurements that the profile omits."""


@dataclass(frozen=True)
class Case:
    """One test case. Its texts are printable."""

    claim: str
    name: str
    kind: Kind
    status: Status
    message: str
    """The reason; for a clause also the measured value and its bound."""
    seconds: float = 0.0


NOTHING = Case("harness report", "nothing ran", Kind.BUNDLE, Status.UNSOUND, "there is no bundle: nothing was measured")
"""The only case of a report without bundles."""


def of_record(record: Record) -> list[Case]:
    """Return the cases of a sound record."""
    cases = [_clause(record, clause, position) for position, clause in enumerate(record.clauses)]
    cases += [_unjudged(record, clause) for clause in record.unjudged]
    cases += [_mutant(record, mutant) for mutant in record.mutants]
    if not cases or not any(case.status in _shows(record) for case in cases):
        reason = reason_text.marked(record.reason) or f"the verdict is {record.verdict}"
        cases.append(Case(record.id, "verdict", Kind.VERDICT, Status(record.verdict), printable(reason)))
    return cases


def of_bundle(bundle: BundleResult) -> list[Case]:
    """Return the cases of a bundle. An unsound or refused bundle is a single case."""
    if bundle.record is not None:
        return of_record(bundle.record)
    return [Case(bundle.name, "bundle", Kind.BUNDLE, Status(bundle.verification.standing), bundle.problem)]


def _shows(record: Record) -> Sequence[Status]:
    """Return the statuses that show the verdict. If no case has one of them, the verdict needs its own case."""
    return tuple(Status) if record.verdict is Verdict.PASS else (Status(record.verdict),)


def _clause(record: Record, clause: ClauseResult, position: int) -> Case:
    measured = (
        f"measured {number_text.value(clause.value, clause.unit)}, bound {bound_text.of(clause.bound, clause.unit)}"
    )
    text = f"{reason_text.marked(clause.reason)} ({measured})" if clause.reason else measured
    # All clauses belong to one trial. Only the first has its time, so that sums are right.
    seconds = record.trial_seconds if position == 0 else 0.0
    status = Status(clause.outcome)
    return Case(record.id, printable(clause.id), Kind.CLAUSE, status, printable(text), seconds)


def _unjudged(record: Record, clause: str) -> Case:
    text = f"the {record.profile} profile does not measure this"
    return Case(record.id, printable(clause), Kind.CLAUSE, Status.NOT_RUN, printable(text))


def _mutant(record: Record, mutant: MutantRecord) -> Case:
    text = f"{mutant.fate}: {reason_text.marked(mutant.reason)} ({mutant.defect})"
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
