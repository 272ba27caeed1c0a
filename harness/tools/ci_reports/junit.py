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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from junitparser import Attr, Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.judging.record import Record
from harness.report.escaping import printable
from harness.report.messages.run_facts import facts
from harness.running.events import ClaimFinished, ClaimPassedOver, ClaimPlanned, Event, Handler, RunFinished, RunStarted
from harness.tools.atomic_file import write_file
from harness.tools.ci_reports import cases
from harness.tools.ci_reports.cases import Case, CaseKind, Status
from harness.tools.text_report import TextReport

if TYPE_CHECKING:
    from harness.tools.text_report import BundleResult

__all__ = ["REPORT", "handler", "render"]

_HARNESS = "harness"
_RESULTS = {"failure": Failure, "error": Error, "skipped": Skipped}


def render(bundles: Sequence[BundleResult]) -> str:
    """Return many bundles as one document. An unsound or refused bundle is an error."""
    refused = [_missing(bundle.name, bundle.problem) for bundle in bundles if bundle.record is None]
    nothing = [] if bundles else [_missing(cases.NOTHING.name, cases.NOTHING.message)]
    suites = [_suite(bundle.record, cases.of_bundle(bundle)) for bundle in bundles if bundle.record is not None]
    return _document(suites, [*refused, *nothing])


def handler(path: Path) -> Handler:
    """Return a handler that keeps the file current, so that a run that dies leaves errors and not an older file.

    Raises:
        OSError: the file cannot be written, now or at the end of the run.
    """
    suites: dict[str, _Suite | None] = {}
    """By the ids of the claims in their order; None until the claim has ended."""
    not_due: list[Case] = []
    contracts: dict[str, Contract] = {}

    def save(why_missing: str) -> None:
        missing = [_missing(name, why_missing) for name, suite in suites.items() if suite is None]
        write_file(path, _document(list(filter(None, suites.values())), [*missing, *not_due]))

    def handle(event: Event) -> None:
        if isinstance(event, ClaimPassedOver):
            not_due.append(_not_due(event))
        elif isinstance(event, RunStarted):
            suites.update(dict.fromkeys(event.claims))
        elif isinstance(event, ClaimPlanned):
            contracts[event.contract.id] = event.contract
        elif isinstance(event, ClaimFinished):
            record = event.record
            suites[record.id] = _suite(record, cases.of_run(record, contracts.get(record.id)))
        if isinstance(event, RunFinished):
            save("the run was interrupted before it")
        elif isinstance(event, (RunStarted, ClaimFinished)):
            with suppress(OSError):  # the run continues; only the write at its end must succeed
                save("the run has not ended")

    write_file(path, _document([], [_missing("nothing ran", "the run has not begun")]))
    return handle


class _Suite(TestSuite):
    """A suite with the attribute `file`, which junitparser does not name."""

    file = Attr()


def _document(suites: Sequence[_Suite], others: Sequence[Case]) -> str:
    """Return the document of suites, and of cases without a record, which have a suite of their own."""
    if not suites and not others:
        others = [_missing("nothing ran", "no claim was run; name claims, or say --all")]
    document = JUnitXml()
    for suite in suites:
        document.append(suite)  # type: ignore[no-untyped-call]
    if others:
        suite = _Suite(_HARNESS)
        suite.add_testcases([*map(_case, others)])
        document.append(suite)  # type: ignore[no-untyped-call]
    document.update_statistics()  # type: ignore[no-untyped-call]
    document._elem.attrib.pop("skipped")  # the schema has it for suites only
    buffer = io.BytesIO()
    document.write(buffer, pretty=True)
    return buffer.getvalue().decode("utf-8")


def _missing(name: str, why: str, status: Status = Status.UNSOUND) -> Case:
    """Return the case of a claim without a record."""
    return Case(_HARNESS, printable(name), CaseKind.CLAIM, status, printable(why))


def _not_due(claim: ClaimPassedOver) -> Case:
    is_known = claim.verdict is Verdict.FAIL and not claim.is_news
    status = Status.HOLDS if claim.is_news and claim.verdict is Verdict.PASS else Status(claim.verdict)
    status = status if claim.is_news else Status.KNOWN if is_known else Status.NOT_RUN
    return _missing(claim.id, claim.reason, status)


def _suite(record: Record, cases: Sequence[Case]) -> _Suite:
    suite = _Suite(printable(f"{record.id} {record.title}"))
    if cases[0].file:
        suite.file = cases[0].file
    suite.timestamp = record.started.removesuffix("+00:00").removesuffix("Z")
    for name, value in facts(record).items():
        suite.add_property(name, value)
    suite.add_testcases([*map(_case, cases)])
    return suite


def _case(case: Case) -> TestCase:
    seconds = round(cases.bounded(case.seconds), 3)
    element = TestCase(case.name, printable(case.claim), seconds)
    place = f"{case.file}:{case.line}" if case.file else ""
    text = "\n".join(filter(None, (place, case.message, *case.details)))
    if case.status is not Status.PASS:
        result = _RESULTS[case.status.junit](case.message, str(case.status))
        result.text = text
        element.result = [result]
    elif case.details:
        element.system_out = text
    return element


REPORT = TextReport("a JUnit report", render, handler)
