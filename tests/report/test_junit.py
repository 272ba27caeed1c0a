"""JUnit reports as a CI service reads them."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from junitparser import JUnitXml
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import Verdict
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.record import Record
from harness.report import junit
from harness.run.events import ClaimFinished, ClaimPassedOver, RunFinished, RunStarted
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, claim_result
from tests.report.texts import nasty, with_texts

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def results_of(text: str) -> dict[str, str]:
    """The result of each case by name; "passed" if it has none."""
    cases = ElementTree.fromstring(text).iter("testcase")
    return {case.attrib["name"]: case[0].tag if len(case) else "passed" for case in cases}


def record_of(folder: Path, **changes: Any) -> Record:
    return claim_result(folder, **changes).record


def test_a_claim_is_a_suite_of_its_clauses_and_mutants(tmp_path: Path) -> None:
    """It has counts, and the circumstances as properties."""
    record = record_of(tmp_path)
    text = junit.render(record)
    results = results_of(text)
    assert list(results) == [
        *(clause.id for clause in record.clauses),
        "mutant forgets-one",
        "mutant stops-early",
        "mutant silent-fallback",
    ]
    assert Counter(results.values()) == {"passed": 16, "skipped": 1}
    (suite,) = JUnitXml.fromstring(text.encode())
    assert (suite.tests, suite.failures, suite.errors, suite.skipped, suite.time) == (17, 0, 0, 1, 4.5)
    assert suite.timestamp == "2026-11-20T20:15:03"
    properties = {one.name: one.value for one in suite.properties()}
    assert properties["profile"] == "reduced"
    assert properties["device"] == "cpu a CPU"
    assert properties["run"] == record.run
    assert properties["proven"] == "yes"


@pytest.mark.parametrize(
    ("changes", "case", "result"),
    [
        ({"measurements": healthy(returned=2)}, "nothing-lost", "failure"),
        ({"measurements": healthy(smallest=...)}, "smallest.type", "skipped"),
        ({"mutants": {**DEFECTIVE, "forgets-one": {}}}, "mutant forgets-one", "error"),
        ({"mutants": {"forgets-one": {"given": 2, "returned": 2}}}, "mutant forgets-one", "error"),
        ({"mutants": {**DEFECTIVE, "forgets-one": {"given": ...}}}, "mutant forgets-one", "skipped"),
        ({"skipped": True}, "mutant forgets-one", "skipped"),
    ],
    ids=["failed", "not measured", "survived", "misattributed", "inconclusive", "mutants skipped"],
)
def test_outcomes_become_results(
    tmp_path: Path, changes: Any, case: str, result: str, snapshot: SnapshotAssertion
) -> None:
    """FAIL is a failure, NOT_MEASURED is skipped, and a surviving mutant is an error."""
    text = junit.render(record_of(tmp_path, **changes))
    assert results_of(text)[case] == result
    found = ElementTree.fromstring(text).find(f".//testcase[@name='{case}']/{result}")
    assert found is not None
    assert found.attrib["message"] == snapshot
    assert found.text == found.attrib["message"]


@pytest.mark.parametrize(
    ("verdict", "result"), [(Verdict.FAIL, "failure"), (Verdict.VOID, "error"), (Verdict.NOT_MEASURED, "skipped")]
)
def test_a_verdict_that_no_case_shows_has_its_own(tmp_path: Path, verdict: Verdict, result: str) -> None:
    """For example if every clause passed and the bundle could not be written."""
    record = record_of(tmp_path, mutants={**DEFECTIVE, "silent-fallback": {"returned": 2}})
    assert set(results_of(junit.render(record)).values()) == {"error", "passed"}
    proven = replace(
        record, mutants=record.mutants[:2], verdict=verdict, reason=Reason(ReasonCode.UNSEALED, text="no space")
    )
    assert results_of(junit.render(proven))["verdict"] == result


def test_a_claim_of_which_nothing_is_known_is_no_empty_suite(tmp_path: Path) -> None:
    """It does not count as passed either."""
    record = replace(record_of(tmp_path), clauses=(), mutants=())
    assert results_of(junit.render(replace(record, verdict=Verdict.NOT_MEASURED))) == {"verdict": "skipped"}
    assert results_of(junit.render(record)) == {"verdict": "passed"}


def test_many_claims_are_written_into_one_file(tmp_path: Path) -> None:
    """One suite per claim, with totals."""
    good = record_of(tmp_path)
    bad = record_of(tmp_path, measurements=healthy(returned=2), run="another")
    path = tmp_path / "new" / "junit.xml"
    junit.write([good, bad], path)
    document = JUnitXml.fromfile(str(path))
    assert (len(document), document.tests, document.failures, document.skipped) == (2, 34, 1, 2)
    assert [entry.name for entry in path.parent.iterdir()] == ["junit.xml"]


def test_a_run_without_claims_is_an_error(tmp_path: Path) -> None:
    """CI must not count it as passed."""
    junit.write([], tmp_path / "junit.xml")
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
    handle(ClaimPassedOver("F-DEMO-OTHER-001", Verdict.FAIL, "FALSIFIED by evidence/two: items were lost"))
    record = record_of(tmp_path)
    handle(RunStarted((record.id,)))
    handle(ClaimFinished(record, None))
    handle(RunFinished(1, (record,), 1.0, interrupted=False))
    results = results_of(path.read_text())
    assert (results["F-DEMO-OTHER-001"], results["nothing-lost"]) == ("failure", "passed")


def test_the_file_says_that_the_run_has_not_ended_until_it_has(tmp_path: Path) -> None:
    """A run that dies leaves errors, not an older file."""
    path = tmp_path / "junit.xml"
    record = record_of(tmp_path)
    junit.write([record], path)
    handle = junit.handler(path)
    assert results_of(path.read_text()) == {"nothing ran": "error"}
    handle(RunStarted((record.id, "F-DEMO-OTHER-001")))
    assert results_of(path.read_text()) == {record.id: "error", "F-DEMO-OTHER-001": "error"}
    handle(ClaimFinished(record, None))
    results = results_of(path.read_text())
    assert (results["nothing-lost"], results["F-DEMO-OTHER-001"]) == ("passed", "error")
    handle(RunFinished(2, (record,), 1.0, interrupted=True))
    assert results_of(path.read_text())["F-DEMO-OTHER-001"] == "error"
    assert "interrupted" in path.read_text()
    handle(ClaimFinished(replace(record, id="F-DEMO-OTHER-001"), None))
    handle(RunFinished(2, (record, record), 1.0, interrupted=False))
    assert "error" not in results_of(path.read_text()).values()


def test_a_place_that_takes_no_file_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """A place that is lost during the run ends no claim."""
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
    """For example `--junit /dev/stdout`."""
    junit.write([record_of(tmp_path)], Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


@SETTINGS
@given(text=nasty)
def test_whatever_a_text_holds_the_xml_is_valid(tmp_path: Path, text: str) -> None:
    """XML allows few control characters and no half surrogates."""
    rendered = junit.render(with_texts(tmp_path, text))
    root = ElementTree.fromstring(rendered.encode("utf-8"))
    assert len(list(root.iter("testcase"))) >= 17
