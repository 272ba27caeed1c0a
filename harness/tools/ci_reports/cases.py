"""The result of a claim for CI services: test cases for JUnit and CTRF, findings for SARIF and annotations.

A claim is a case with its verdict, and so is each mutant. The clauses that did not pass are the details of the claim's
case. A finding is one thing that speaks against a claim: a clause that FAILed, a mutant that survived, an unsound
bundle. Readers of these formats only count, so a report without bundles is a case of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from harness.base.vocabulary import Fate, Verdict
from harness.contract import Contract
from harness.contract.clauses import ClauseResult
from harness.contract.contract_annotations import Refutation
from harness.judging.record import MutantRecord, Record
from harness.report.contract_file import UNKNOWN, ContractFile
from harness.report.escaping import printable
from harness.report.messages import reason_text
from harness.report.messages.not_finite import decisive, violations, wrong
from harness.report.messages.qualifiers import refutation_text
from harness.tools.report_text import violation

if TYPE_CHECKING:
    from harness.tools.text_report import BundleResult

__all__ = [
    "NOTHING",
    "Case",
    "CaseKind",
    "Status",
    "bounded",
    "findings",
    "of_bundle",
    "of_record",
    "of_run",
]

_MOST_DETAILS = 20
_LONGEST_SECONDS = 1e9


class CaseKind(StrEnum):
    """What a case describes."""

    CLAIM = "claim"
    CLAUSE = "clause"
    MUTANT = "mutant"
    BUNDLE = "bundle"


class Status(StrEnum):
    """The result of a case, and what it is in each format."""

    junit: str
    """The element; empty for none."""
    ctrf: str
    level: str
    """The level of an annotation; empty for none."""

    def __new__(cls, word: str, junit: str = "error", ctrf: str = "failed", level: str = "error") -> Self:
        member = str.__new__(cls, word)
        member._value_, member.junit, member.ctrf, member.level = word, junit, ctrf, level
        return member

    PASS = "PASS", "", "passed", ""
    """A claim that holds, or a mutant that was killed."""
    FAIL = "FAIL", "failure"
    """A claim or a clause that is violated."""
    KNOWN = "KNOWN", "skipped", "other", "notice"
    """A FAIL that the contract states as a known refutation."""
    HOLDS = "HOLDS", "failure"
    """A claim that holds, where the contract states a refutation."""
    VOID = "VOID"
    """A mutant survived, or failed on other clauses only. The PASS of the subject means nothing."""
    UNSOUND = "UNSOUND"
    """The bundle is not evidence, or there is no bundle."""
    NOT_ACCEPTED = "NOT_ACCEPTED"
    """The bundle is sound, but has a remark that you asked to refuse."""
    NOT_MEASURED = "NOT_MEASURED", "skipped", "other", "warning"
    """The machine, the falsifier or an interruption prevented the measurement."""
    NOT_RUN = "NOT_RUN", "skipped", "skipped"
    """A mutant that cannot run on this machine or was skipped."""


@dataclass(frozen=True)
class Case:
    """One test case or finding. Its texts are printable."""

    claim: str
    name: str
    kind: CaseKind
    status: Status
    message: str
    """The reason; for a clause also the measured value and its bound."""
    seconds: float = 0.0
    """Wall-clock time of the trial. It includes no wait for a device."""
    file: str = ""
    """The contract's file; empty if unknown."""
    line: int = 1
    details: tuple[str, ...] = ()
    """Lines. A claim has the clauses that did not pass or are not judged, and how to reproduce it."""


NOTHING = Case(
    "harness report", "nothing ran", CaseKind.BUNDLE, Status.UNSOUND, "there is no bundle: nothing was measured"
)
"""The only case of a report without bundles."""


def of_record(record: Record, contract: ContractFile = UNKNOWN, refutation: Refutation | None = None) -> list[Case]:
    """Return the cases of a sound record: the claim, then its mutants.

    Args:
        refutation: the known refutation that speaks of the run.
    """
    claim = _claim(record, contract, refutation)
    return [claim, *(_mutant(record, mutant, contract) for mutant in record.mutants)]


def of_run(record: Record, contract: Contract | None) -> list[Case]:
    """Return the cases of a claim that this process ran: the claim, then its mutants."""
    if contract is None:
        return of_record(record)
    return of_record(record, ContractFile.of(contract), record.refutation(contract))


def of_bundle(bundle: BundleResult) -> list[Case]:
    """Return the cases of a bundle. An unsound or refused bundle is a single case."""
    if bundle.record is None:
        return [_refused(bundle)]
    return of_record(bundle.record, bundle.contract, bundle.refutation)


def findings(bundle: BundleResult) -> list[Case]:
    """Return what speaks against a claim or its evidence. A claim that was not measured has no finding."""
    record, contract = bundle.record, bundle.contract
    if record is None:
        return [_refused(bundle)]
    claim = _claim(record, contract, bundle.refutation)
    if claim.status not in (Status.FAIL, Status.KNOWN, Status.VOID):
        return [claim] if claim.status is Status.HOLDS else []
    clauses = [_clause(record, clause, contract) for clause, _ in violations(record.clauses)]
    mutants = [_mutant(record, mutant, contract) for mutant in record.mutants if _FATES[mutant.fate] is Status.VOID]
    return [*clauses, *mutants] or [claim]


def bounded(seconds: float) -> float:
    """Return seconds, limited to about thirty years: a foreign bundle may state any, and schemas allow no exponent."""
    return min(seconds, _LONGEST_SECONDS)


def _refused(bundle: BundleResult) -> Case:
    status, contract = Status(bundle.verification.standing), bundle.contract
    line = contract.claim()
    return Case(bundle.name, "bundle", CaseKind.BUNDLE, status, bundle.problem, file=contract.name, line=line)


def _claim(record: Record, contract: ContractFile, refutation: Refutation | None) -> Case:
    message = reason_text.marked(decisive(record))
    if refutation is not None:
        message = "; ".join(filter(None, (refutation_text(refutation, record.result), message)))
    return Case(
        claim=record.id,
        name=record.id,
        kind=CaseKind.CLAIM,
        status=_standing(record, refutation),
        message=printable(message),
        seconds=record.trial_seconds,
        file=contract.name,
        line=contract.line_of(record),
        details=tuple(map(printable, _details(record))),
    )


def _standing(record: Record, refutation: Refutation | None) -> Status:
    if refutation is not None and refutation.expects(record.result):
        return Status.KNOWN
    return Status.HOLDS if refutation is not None and record.verdict is Verdict.PASS else Status(record.verdict)


def _details(record: Record) -> Iterator[str]:
    clauses, others = wrong(record.clauses)
    if record.unjudged:
        yield f"not judged in the {record.profile} profile: {record.left_out}"
    for clause in clauses[:_MOST_DETAILS]:
        yield f"{clause.outcome} {clause.id}: {violation(clause)}"
    if len(clauses) > _MOST_DETAILS:
        yield f"and {len(clauses) - _MOST_DETAILS} more clauses"
    if others:
        yield others
    if record.verdict is not Verdict.PASS:
        yield f"to reproduce: {record.command}"


def _clause(record: Record, clause: ClauseResult, contract: ContractFile) -> Case:
    status, text = Status(clause.outcome), printable(violation(clause))
    line = contract.clause(clause.id)
    return Case(record.id, printable(clause.id), CaseKind.CLAUSE, status, text, file=contract.name, line=line)


def _mutant(record: Record, mutant: MutantRecord, contract: ContractFile) -> Case:
    return Case(
        claim=record.id,
        name=printable(f"mutant {mutant.id}"),
        kind=CaseKind.MUTANT,
        status=_FATES[mutant.fate],
        message=printable(f"{mutant.fate}: {reason_text.marked(mutant.reason)} ({mutant.defect})"),
        seconds=mutant.seconds or 0.0,
        file=contract.name,
        line=contract.mutant(mutant.id),
    )


_FATES = {
    Fate.KILLED: Status.PASS,
    Fate.SURVIVED: Status.VOID,
    Fate.MISATTRIBUTED: Status.VOID,
    Fate.INCONCLUSIVE: Status.NOT_MEASURED,
    Fate.NOT_RUN: Status.NOT_RUN,
    Fate.INTERRUPTED: Status.NOT_MEASURED,
}
