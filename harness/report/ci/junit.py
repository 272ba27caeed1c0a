"""JUnit XML for CI: one suite for each claim, with a case for the claim and one for each mutant.

    failure  a claim that FAILed, with the clauses that are violated; one that holds where its contract states a
             refutation
    error    a mutant that survived or failed on other clauses only, and a claim that is VOID; an unsound bundle
    skipped  a claim or mutant that was not measured or not run, or a claim that was not due; with the reason. A
             refutation that the contract knows too, of the type KNOWN, as pytest writes expected failures

The document has the form of junit-10.xsd of Jenkins' xUnit plugin, in which a suite has a `file` and a case has none.
GitLab shows no file of a suite, so the text of a failure begins with the place in the contract. Times are those of the
trials; a wait for a device is in none.

Readers often count only failures and errors. A run without a result must not look green to them: a file without claims
has one error, and while a run lasts the file has an error that says so.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from junitparser import Attr, Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from harness.base import strictjson
from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.contract.contract_annotations import Refutation
from harness.judging.record import Record
from harness.report.atomic_file import write_file
from harness.report.ci import ci_cases
from harness.report.ci.ci_cases import Case, Kind, Status
from harness.report.contract_file import UNKNOWN, ContractFile
from harness.report.escaping import printable
from harness.report.messages import reason_text
from harness.running.events import ClaimFinished, ClaimPassedOver, ClaimPlanned, Event, Handler, RunFinished, RunStarted

if TYPE_CHECKING:
    from harness.report.bundle_results import BundleResult

__all__ = ["handler", "properties_of", "render", "write"]

_HARNESS = "harness"
_RESULTS = {
    Status.FAIL: Failure,
    Status.KNOWN: Skipped,
    Status.HOLDS: Failure,
    Status.VOID: Error,
    Status.UNSOUND: Error,
    Status.NOT_ACCEPTED: Error,
    Status.NOT_MEASURED: Skipped,
    Status.NOT_RUN: Skipped,
}


def write(
    records: Iterable[Record],
    path: Path,
    *,
    contracts: Mapping[str, Contract] | None = None,
    missing: Sequence[tuple[str, str]] = (),
    passed_over: Sequence[ClaimPassedOver] = (),
) -> None:
    """Write the records of many claims into one file, in one step.

    Args:
        contracts: by the id of the claim.
        missing: claims without a record, with the reasons. Each is an error.
        passed_over: claims that were not due. One whose evidence is news is a failure.

    Raises:
        OSError: the file cannot be written.
    """
    suites = []
    for record in records:
        contract = (contracts or {}).get(record.id)
        file = UNKNOWN if contract is None else ContractFile.of(contract)
        suites.append(_suite(record, file, None if contract is None else record.refutation(contract)))
    write_file(path, _document(suites, missing, passed_over))


def render(bundles: Sequence[BundleResult]) -> str:
    """Return many bundles as one document. An unsound or refused bundle is an error."""
    refused = [(bundle.name, bundle.problem) for bundle in bundles if bundle.record is None]
    nothing = [] if bundles else [(ci_cases.NOTHING.name, ci_cases.NOTHING.message)]
    suites = [
        _suite(bundle.record, bundle.contract, bundle.refutation) for bundle in bundles if bundle.record is not None
    ]
    return _document(suites, [*refused, *nothing])


def handler(path: Path) -> Handler:
    """Return a handler that keeps the file current, so that a run that dies leaves errors and not an older file.

    Raises:
        OSError: the file cannot be written, now or at the end of the run.
    """
    declared: list[str] = []
    records: list[Record] = []
    passed_over: list[ClaimPassedOver] = []
    contracts: dict[str, Contract] = {}

    def save(why_missing: str) -> None:
        ended = {record.id for record in records}
        missing = [(name, why_missing) for name in declared if name not in ended]
        write(
            sorted(records, key=lambda record: declared.index(record.id)),
            path,
            contracts=contracts,
            missing=missing,
            passed_over=passed_over,
        )

    def handle(event: Event) -> None:
        if isinstance(event, ClaimPassedOver):
            passed_over.append(event)
        elif isinstance(event, RunStarted):
            declared.extend(event.claims)
        elif isinstance(event, ClaimPlanned):
            contracts[event.contract.id] = event.contract
        elif isinstance(event, ClaimFinished):
            records.append(event.record)
        if isinstance(event, RunFinished):
            save("the run was interrupted before it")
        elif isinstance(event, (RunStarted, ClaimFinished)):
            with suppress(OSError):  # the run continues; only the write at its end must succeed
                save("the run has not ended")

    write([], path, missing=[("nothing ran", "the run has not begun")])
    return handle


class _Suite(TestSuite):
    """A suite with the attribute `file`, which junitparser does not name."""

    file = Attr()


def _document(
    suites: Sequence[_Suite], missing: Sequence[tuple[str, str]], passed_over: Sequence[ClaimPassedOver] = ()
) -> str:
    if not suites and not missing and not passed_over:
        missing = [("nothing ran", "no claim was run; name claims, or say --all")]
    document = JUnitXml()
    for suite in suites:
        document.append(suite)  # type: ignore[no-untyped-call]
    if missing or passed_over:
        others = _Suite(_HARNESS)
        others.add_testcases(
            [*(_other(name, Status.UNSOUND, why) for name, why in missing), *map(_not_due, passed_over)]
        )
        document.append(others)  # type: ignore[no-untyped-call]
    document.update_statistics()  # type: ignore[no-untyped-call]
    document._elem.attrib.pop("skipped")  # the schema has it for suites only
    buffer = io.BytesIO()
    document.write(buffer, pretty=True)
    return buffer.getvalue().decode("utf-8")


def _other(name: str, status: Status, why: str) -> TestCase:
    """Return the case of a claim without a record."""
    return _case(Case(_HARNESS, printable(name), Kind.CLAIM, status, printable(why)))


def _not_due(claim: ClaimPassedOver) -> TestCase:
    is_known = claim.verdict is Verdict.FAIL and not claim.is_news
    status = Status.HOLDS if claim.is_news and claim.verdict is Verdict.PASS else Status(claim.verdict)
    return _other(claim.id, status if claim.is_news else Status.KNOWN if is_known else Status.NOT_RUN, claim.reason)


def _suite(record: Record, contract: ContractFile, refutation: Refutation | None = None) -> _Suite:
    suite = _Suite(printable(f"{record.id} {record.title}"))
    if contract.name:
        suite.file = contract.name
    suite.timestamp = record.started.removesuffix("+00:00").removesuffix("Z")
    for name, value in properties_of(record).items():
        suite.add_property(name, printable(value))
    suite.add_testcases([_case(case) for case in ci_cases.of_record(record, contract, refutation)])
    return suite


def properties_of(record: Record) -> dict[str, str]:
    """Return what a report says of a run beside its outcome: names and texts."""
    device = record.device
    return {
        "verdict": str(record.verdict),
        "proven": "yes" if record.proven else "no",
        "reason": reason_text.marked(record.reason),
        "profile": record.profile,
        "subject": record.subject,
        "device": f"{device.type} {device.name}",
        "overrides": strictjson.dumps(strictjson.tag_nonfinite(dict(record.overrides))),
        "run": record.run,
        "issue": record.issue,
        "spec": record.spec,
        "commit": f"{record.commit.get('revision')}{' (dirty)' if record.commit.get('dirty') else ''}",
        "contract_sha256": record.contract_digest,
        "command": record.command,
        "waited_seconds": str(record.waited_seconds),
    }


def _case(case: Case) -> TestCase:
    seconds = round(ci_cases.bounded(case.seconds), 3)
    element = TestCase(case.name, printable(case.claim), seconds)
    place = f"{case.file}:{case.line}" if case.file else ""
    text = "\n".join(filter(None, (place, case.message, *case.details)))
    if case.status is not Status.PASS:
        result = _RESULTS[case.status](case.message, str(case.status))
        result.text = text
        element.result = [result]
    elif case.details:
        element.system_out = text
    return element
