"""JUnit XML for CI: one suite for each claim, with a case for each clause and each mutant.

    failure  a clause that FAILed
    error    a mutant that survived or failed on other clauses only: the claim is VOID
    skipped  a clause or mutant that was not measured or not run, or a claim that was not due; with the reason

Readers often count only failures and errors. A run without a result must not look green to them: a verdict that no
other case shows has its own case, a file without claims has one error, and while a run lasts the file has an error that
says so.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from harness.base import strictjson
from harness.base.vocabulary import Verdict
from harness.judging.record import Record
from harness.report import ci_cases, reason_text
from harness.report.atomic_file import write_file
from harness.report.ci_cases import Case, Status
from harness.report.escaping import printable
from harness.run.events import ClaimFinished, ClaimPassedOver, Event, Handler, RunFinished, RunStarted

if TYPE_CHECKING:
    from harness.report.bundle_results import BundleResult

__all__ = ["handler", "render", "report", "write"]

_HARNESS = "harness"
Result = Failure | Error | Skipped


def render(record: Record) -> str:
    """Return the record of one claim as a JUnit document."""
    return _text([_suite(record)])


def write(
    records: Iterable[Record],
    path: Path,
    *,
    missing: Sequence[tuple[str, str]] = (),
    passed_over: Sequence[ClaimPassedOver] = (),
) -> None:
    """Write the records of many claims into one file, in one step.

    Args:
        missing: claims without a record, with the reasons. Each is an error.
        passed_over: claims that were not due. One whose evidence is a FAIL is a failure.

    Raises:
        OSError: the file cannot be written.
    """
    write_file(path, _document(records, missing, passed_over))


def report(bundles: Sequence[BundleResult]) -> str:
    """Return many bundles as one document. An unsound or refused bundle is an error."""
    refused = [(bundle.name, bundle.problem) for bundle in bundles if bundle.record is None]
    nothing = [] if bundles else [(ci_cases.NOTHING.name, ci_cases.NOTHING.message)]
    return _document([bundle.record for bundle in bundles if bundle.record is not None], [*refused, *nothing])


def handler(path: Path) -> Handler:
    """Return a handler that keeps the file current, so that a run that dies leaves errors and not an older file.

    Raises:
        OSError: the file cannot be written, now or at the end of the run.
    """
    declared: list[str] = []
    records: list[Record] = []
    passed_over: list[ClaimPassedOver] = []

    def rest(reason: str) -> list[tuple[str, str]]:
        # Claims run in the order of their declaration.
        return [(name, reason) for name in declared[len(records) :]]

    def handle(event: Event) -> None:
        if isinstance(event, ClaimPassedOver):
            passed_over.append(event)
        elif isinstance(event, RunStarted):
            declared.extend(event.claims)
        elif isinstance(event, ClaimFinished):
            records.append(event.record)
        if isinstance(event, RunFinished):
            write(records, path, missing=rest("the run was interrupted before it"), passed_over=passed_over)
        elif isinstance(event, (RunStarted, ClaimFinished)):
            with suppress(OSError):  # the run continues; only the write at its end must succeed
                write(records, path, missing=rest("the run has not ended"), passed_over=passed_over)

    write([], path, missing=[("nothing ran", "the run has not begun")])
    return handle


def _document(
    records: Iterable[Record], missing: Sequence[tuple[str, str]], passed_over: Sequence[ClaimPassedOver] = ()
) -> str:
    suites = [_suite(record) for record in records]
    if not suites and not missing and not passed_over:
        missing = [("nothing ran", "no claim was run; name claims, or say --all")]
    if missing or passed_over:
        suite = TestSuite(_HARNESS)
        suite.add_testcases([_case(_HARNESS, name, None, Error(printable(why), "NOT_RUN")) for name, why in missing])
        suite.add_testcases([_case(_HARNESS, claim.id, None, _stands(claim)) for claim in passed_over])
        suites.append(suite)
    return _text(suites)


def _suite(record: Record) -> TestSuite:
    suite = TestSuite(printable(f"{record.id} {record.title}"))
    suite.timestamp = record.started.removesuffix("+00:00").removesuffix("Z")
    for name, value in _properties(record).items():
        suite.add_property(name, printable(value))
    of_claim = ci_cases.of_record(record)
    suite.add_testcases([_case(case.claim, case.name, case.seconds, _result(case)) for case in of_claim])
    suite.time = record.seconds
    return suite


def _properties(record: Record) -> dict[str, str]:
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
    }


def _result(case: Case) -> Result | None:
    match case.status:
        case Status.PASS:
            return None
        case Status.FAIL:
            return Failure(case.message, str(case.status))
        case Status.VOID | Status.UNSOUND | Status.NOT_ACCEPTED:
            return Error(case.message, str(case.status))
        case Status.NOT_MEASURED | Status.NOT_RUN:
            return Skipped(case.message, str(case.status))


def _stands(claim: ClaimPassedOver) -> Result:
    if claim.verdict is Verdict.FAIL:
        return Failure(printable(claim.reason), str(claim.verdict))
    return Skipped(printable(claim.reason), "NOT_RUN")


def _case(classname: str, name: str, seconds: float | None, result: Result | None) -> TestCase:
    case = TestCase(printable(name), printable(classname), seconds)
    if result is not None:
        result.text = result.message
        case.result = [result]
    return case


def _text(suites: Sequence[TestSuite]) -> str:
    document = JUnitXml()
    seconds = sum(suite.time or 0.0 for suite in suites)
    times = [suite.time for suite in suites]
    for suite in suites:
        document.append(suite)  # type: ignore[no-untyped-call]
    document.update_statistics()  # type: ignore[no-untyped-call]
    # update_statistics() sums the times of the cases. Trials run side by side, so the claim's own time is right.
    for suite, time in zip(document, times, strict=True):
        suite.time = round(time or 0.0, 3)
    document.time = round(seconds, 3)
    buffer = io.BytesIO()
    document.write(buffer, pretty=True)
    return buffer.getvalue().decode("utf-8")
