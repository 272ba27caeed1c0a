"""JUnit reports as a CI service reads them."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema
from hypothesis import HealthCheck, given, settings
from junitparser import JUnitXml

from harness.base.vocabulary import Verdict
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.findings import Verification
from harness.judging.record import Record
from harness.report.contract_file import UNKNOWN, ContractFile
from harness.running.events import ClaimFinished, ClaimPassedOver, RunFinished, RunStarted
from harness.tools.ci_reports import junit
from harness.tools.text_report import BundleResult
from tests.contracts import healthy
from tests.evidence.factory import claim_result
from tests.report.texts import nasty, with_texts

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@cache
def schema() -> xmlschema.XMLSchema10:
    """The schema by which Jenkins' xUnit plugin accepts reports."""
    return xmlschema.XMLSchema10(Path(__file__).parents[2] / "recorded" / "schemas" / "junit-10.xsd")


def root_of(text: str) -> ElementTree.Element:
    """The root of a valid document with correct counts."""
    root = ElementTree.fromstring(text.encode())
    assert [error.reason for error in schema().iter_errors(root)] == []
    for element in (root, *root.iter("testsuite")):
        cases = list(element.iter("testcase"))
        found = Counter(case[0].tag for case in cases if len(case))
        counts = {"tests": len(cases), "failures": found["failure"], "errors": found["error"]}
        assert {name: int(element.attrib[name]) for name in counts} == counts
        assert float(element.attrib["time"]) == pytest.approx(sum(float(case.attrib["time"]) for case in cases))
    return root


def results_of(text: str) -> dict[str, str]:
    """The result of each case by name; "passed" if it has none."""
    cases = root_of(text).iter("testcase")
    return {
        case.attrib["name"]: case[0].tag if len(case) and case[0].tag != "system-out" else "passed" for case in cases
    }


def record_of(folder: Path, **changes: Any) -> Record:
    return claim_result(folder, **changes).record


def rendered(record: Record, contract: ContractFile = UNKNOWN) -> str:
    """The document of one sound record."""
    return junit.render([BundleResult(Verification(Path("bundle"), ()), record, contract)])


def test_a_claim_is_a_suite_of_the_claim_and_its_mutants(tmp_path: Path) -> None:
    """No clause is a case. The suite has the contract's file, counts, and the circumstances as properties."""
    result = claim_result(tmp_path)
    text = rendered(result.record, ContractFile.of(result.contract))
    assert results_of(text) == {
        "F-DEMO-SORT-001": "passed",
        "mutant forgets-one": "passed",
        "mutant stops-early": "passed",
        "mutant silent-fallback": "skipped",
    }
    (suite,) = JUnitXml.fromstring(text.encode())
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (4, 0, 0, 1)
    assert suite.timestamp == "2026-11-20T20:15:03"
    (element,) = root_of(text)
    assert Path(element.attrib["file"]).resolve() == result.contract.path.resolve()
    properties = {prop.name: prop.value for prop in suite.properties()}
    assert properties["profile"] == "reduced"
    assert properties["device"] == "cpu a CPU"
    assert properties["run"] == result.record.run
    assert properties["proven"] == "yes"


def test_times_are_those_of_the_trials(tmp_path: Path) -> None:
    """No time includes a wait for the device, which is a property."""
    record = record_of(tmp_path, seconds=190.0, trial_seconds=1.25, waited_seconds=148.0)
    mutants = sum(mutant.seconds or 0 for mutant in record.mutants)
    (suite,) = root_of(rendered(record))
    assert suite.find("properties/property[@name='waited_seconds']").attrib["value"] == "148.0"  # type: ignore[union-attr]
    assert float(suite.attrib["time"]) == pytest.approx(1.25 + mutants)
    assert schema().is_valid(ElementTree.fromstring(rendered(replace(record, trial_seconds=1e308))))


def test_a_failure_begins_with_its_place_and_has_the_clauses(tmp_path: Path) -> None:
    """The line is that of the first clause that FAILed. The text ends with the command that reproduces it."""
    result = claim_result(tmp_path, measurements=healthy(returned=2))
    file = ContractFile.of(result.contract)
    found = root_of(rendered(result.record, file)).find(".//failure")
    assert found is not None
    place, message, clause, *_, reproduce = (found.text or "").splitlines()
    assert message == found.attrib["message"]
    line = int(place.rpartition(":")[2])
    assert '"nothing-lost"' in result.contract.content.decode().splitlines()[line - 1]
    assert clause.startswith("FAIL nothing-lost: ")
    assert reproduce.endswith(result.record.command)


@pytest.mark.parametrize(
    ("verdict", "result"), [(Verdict.FAIL, "failure"), (Verdict.VOID, "error"), (Verdict.NOT_MEASURED, "skipped")]
)
def test_the_claims_case_has_the_verdict(tmp_path: Path, verdict: Verdict, result: str) -> None:
    """It does so also if every clause passed but the bundle could not be written, or if nothing is known."""
    record = replace(record_of(tmp_path), verdict=verdict, reason=Reason(ReasonCode.UNSEALED, text="no space"))
    assert results_of(rendered(record))[record.id] == result
    assert results_of(rendered(replace(record, clauses=(), mutants=()))) == {record.id: result}


def run(path: Path, *records: Record) -> None:
    """Write the file of a run of these records."""
    handle = junit.handler(path)
    handle(RunStarted(tuple(record.id for record in records)))
    for record in records:
        handle(ClaimFinished(record, None))
    handle(RunFinished(len(records), records, 1.0, interrupted=False))


def test_many_claims_are_written_into_one_file(tmp_path: Path) -> None:
    """There is one suite for each claim, with totals."""
    good = record_of(tmp_path)
    bad = replace(record_of(tmp_path, measurements=healthy(returned=2), run="another"), id="F-DEMO-OTHER-001")
    path = tmp_path / "new" / "junit.xml"
    run(path, good, bad)
    document = JUnitXml.fromfile(str(path))
    assert (len(document), document.tests, document.failures, document.skipped) == (2, 8, 1, 2)
    assert [entry.name for entry in path.parent.iterdir()] == ["junit.xml"]


def test_a_run_without_claims_is_an_error(tmp_path: Path) -> None:
    """CI must not count it as passed."""
    run(tmp_path / "junit.xml")
    assert results_of((tmp_path / "junit.xml").read_text()) == {"nothing ran": "error"}


def test_claims_that_are_not_due_are_no_error_and_no_pass(tmp_path: Path) -> None:
    """A night without stale claims is no error. A standing FAIL is one, also beside claims that passed."""
    path = tmp_path / "junit.xml"
    handle = junit.handler(path)
    handle(ClaimPassedOver("F-DEMO-COVERED-001", Verdict.PASS, "not due: DISCHARGED by evidence/one"))
    handle(ClaimPassedOver("F-DEMO-HUGE-001", Verdict.NOT_MEASURED, "not for this machine: full: needs 9 GPUs"))
    handle(RunStarted(()))
    handle(RunFinished(0, (), 0.0, interrupted=False))
    assert results_of(path.read_text()) == {"F-DEMO-COVERED-001": "skipped", "F-DEMO-HUGE-001": "skipped"}
    handle(
        ClaimPassedOver("F-DEMO-OTHER-001", Verdict.FAIL, "FALSIFIED by evidence/two: items were lost", is_news=True)
    )
    record = record_of(tmp_path)
    handle(RunStarted((record.id,)))
    handle(ClaimFinished(record, None))
    handle(RunFinished(1, (record,), 1.0, interrupted=False))
    results = results_of(path.read_text())
    assert (results["F-DEMO-OTHER-001"], results[record.id]) == ("failure", "passed")


def test_the_file_says_that_the_run_has_not_ended_until_it_has(tmp_path: Path) -> None:
    """A run that dies leaves a file with errors, not an older file."""
    path = tmp_path / "junit.xml"
    record = record_of(tmp_path)
    run(path, record)
    handle = junit.handler(path)
    assert results_of(path.read_text()) == {"nothing ran": "error"}
    handle(RunStarted((record.id, "F-DEMO-OTHER-001")))
    assert results_of(path.read_text()) == {record.id: "error", "F-DEMO-OTHER-001": "error"}
    handle(ClaimFinished(record, None))
    results = results_of(path.read_text())
    assert (results[record.id], results["F-DEMO-OTHER-001"]) == ("passed", "error")
    handle(RunFinished(2, (record,), 1.0, interrupted=True))
    assert results_of(path.read_text())["F-DEMO-OTHER-001"] == "error"
    assert "interrupted" in path.read_text()
    handle(ClaimFinished(replace(record, id="F-DEMO-OTHER-001"), None))
    handle(RunFinished(2, (record, record), 1.0, interrupted=False))
    assert "error" not in results_of(path.read_text()).values()


def test_a_place_that_takes_no_file_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """The refusal comes before the run. A file that is lost during the run ends no claim."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        junit.handler(tmp_path / "file" / "junit.xml")
    handle = junit.handler(tmp_path / "folder" / "junit.xml")
    shutil.rmtree(tmp_path / "folder")
    (tmp_path / "folder").write_text("")
    handle(RunStarted(("F-DEMO-SORT-001",)))
    with pytest.raises(OSError, match="folder"):
        handle(RunFinished(1, (), 1.0, interrupted=True))


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """A path such as `/dev/stdout` is a device, which must not be replaced by a file."""
    run(Path("/dev/null"), record_of(tmp_path))
    assert Path("/dev/null").is_char_device()


@SETTINGS
@given(text=nasty)
def test_whatever_a_text_holds_the_xml_is_valid(tmp_path: Path, text: str) -> None:
    """XML allows few control characters and no half surrogates."""
    document = rendered(with_texts(tmp_path, text))
    assert len(list(root_of(document).iter("testcase"))) == 4
