"""The cases of a claim, which all machine-readable reports share."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from harness.base.vocabulary import Verdict
from harness.contract.reasons import Reason, ReasonCode
from harness.running.events import ClaimFinished, ClaimPassedOver, ClaimPlanned
from harness.tools.ci_reports import annotations, cases, ctrf, junit, sarif
from harness.tools.ci_reports.cases import Status
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, claim_result, contract_in
from tests.report.bundles import every_verdict, examined, refuted, unsound


@pytest.mark.parametrize(
    ("changes", "name", "status"),
    [
        ({}, "F-DEMO-SORT-001", "PASS"),
        ({"measurements": healthy(returned=2)}, "F-DEMO-SORT-001", "FAIL"),
        ({"measurements": healthy(smallest=...)}, "F-DEMO-SORT-001", "NOT_MEASURED"),
        ({}, "mutant forgets-one", "PASS"),
        ({}, "mutant silent-fallback", "NOT_RUN"),
        ({"skipped": True}, "mutant forgets-one", "NOT_RUN"),
        ({"mutants": {**DEFECTIVE, "forgets-one": {}}}, "mutant forgets-one", "VOID"),
        ({"mutants": {"forgets-one": {"given": 2, "returned": 2}}}, "mutant forgets-one", "VOID"),
        ({"mutants": {**DEFECTIVE, "forgets-one": {"given": ...}}}, "mutant forgets-one", "NOT_MEASURED"),
        ({"cut_short": True}, "mutant silent-fallback", "NOT_MEASURED"),
    ],
)
def test_claims_and_mutants_become_cases(tmp_path: Path, changes: Any, name: str, status: str) -> None:
    """Each case has its result, and a reason unless it is a PASS."""
    found = {case.name: case for case in cases.of_record(claim_result(tmp_path, **changes).record)}
    assert found[name].status == status
    assert found[name].message or status == "PASS"


@pytest.mark.parametrize("status", Status)
def test_each_status_is_one_of_each_format(status: Status) -> None:
    """This test fails for a new verdict that has no status."""
    assert status.junit in {"", "failure", "error", "skipped"}
    assert status.ctrf in {"passed", "failed", "skipped", "other"}
    assert status.level in {"", "error", "warning", "notice"}
    assert (status is Status.PASS) == (not status.junit) == (status.ctrf == "passed")


def test_what_fails_is_told_before_what_is_missing(tmp_path: Path) -> None:
    """The claim's case has the violated clauses, and sums up those that were not measured."""
    record = claim_result(tmp_path, measurements=healthy(returned=2, smallest=...)).record
    claim, *_ = cases.of_record(record)
    *violated, unmeasured, _ = claim.details
    assert [line.split(":")[0] for line in violated] == ["FAIL nothing-lost"]
    assert "smallest" in unmeasured


def test_findings_are_what_speaks_against_a_claim(tmp_path: Path) -> None:
    """A clause that FAILed, a surviving mutant and an unsound bundle are findings.

    A clause that was NOT_MEASURED is none.
    """
    found = {
        bundle.path.name: [(case.name, str(case.status)) for case in cases.findings(bundle)]
        for bundle in every_verdict(tmp_path)
    }
    assert found == {
        "a-pass": [],
        "b-fail": [("nothing-lost", "FAIL")],
        "c-void": [("mutant forgets-one", "VOID")],
        "d-nothing": [],
        "e-unproven": [],
        "f-tampered": [("bundle", "UNSOUND")],
    }


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.VOID])
def test_a_verdict_that_no_clause_explains_is_a_finding(tmp_path: Path, verdict: Verdict) -> None:
    record = claim_result(tmp_path).record
    unsealed = replace(record, verdict=verdict, reason=Reason(ReasonCode.UNSEALED, text="no space"))
    (only,) = cases.findings(examined(unsealed))
    assert (only.name, only.status) == (record.id, str(verdict))


def test_no_verdict_but_pass_has_only_green_cases(tmp_path: Path) -> None:
    """Every verdict but PASS has a case that is not green."""
    for bundle in every_verdict(tmp_path):
        statuses = Counter(case.status for case in cases.of_bundle(bundle))
        if bundle.record is None:
            assert statuses == {Status.UNSOUND: 1}
        elif bundle.record.verdict is Verdict.PASS:
            assert set(statuses) == {Status.PASS, Status.NOT_RUN}
        else:
            assert statuses[Status(bundle.record.verdict)]


def test_an_unsound_bundle_says_what_is_wrong(tmp_path: Path) -> None:
    """The case has the finding, and no texts of the record."""
    (case,) = cases.of_bundle(unsound("summary.md"))
    assert case.message == "unsound: TAMPERED summary.md: summary.md"


def test_known_refutations_are_apart_from_new_ones(tmp_path: Path) -> None:
    """Each report has them: JUnit skips what is known, CTRF calls it other, and SARIF suppresses its findings."""
    texts = {}
    for name, bundle in refuted(tmp_path).items():
        claim, *_ = cases.of_bundle(bundle)
        case = ElementTree.fromstring(junit.render([bundle])).find(f".//testcase[@name='{bundle.name}']")
        assert case is not None
        (test,) = [
            load for load in json.loads(ctrf.render([bundle]))["results"]["tests"] if load["name"] == bundle.name
        ]
        (finding,) = json.loads(sarif.render([bundle]))["runs"][0]["results"]
        suppressed = [suppression["status"] for suppression in finding.get("suppressions", ())]
        texts[name] = (str(claim.status), case[0].tag, test["status"], finding["level"], suppressed)
        assert all(text.startswith(("known since ", "new: ")) for text in (claim.message, case[0].attrib["message"]))
    assert texts == {
        "known": ("KNOWN", "skipped", "other", "note", ["accepted"]),
        "other": ("FAIL", "failure", "failed", "error", []),
        "holds": ("HOLDS", "failure", "failed", "error", []),
    }


@pytest.mark.parametrize(("clauses", "level"), [(["nothing-lost"], "notice"), (["subject.completes"], "error")])
def test_a_known_refutation_is_a_notice_in_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clauses: list[str], level: str
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    levels: list[str] = []
    monkeypatch.setattr(annotations, "annotate", lambda level, *rest: levels.append(level))
    stated = {"since": "2026-11-23", "device": "CPU", "profile": "reduced", "explanation": "The source is wrong."}
    contract = contract_in(tmp_path, refuted=[{**stated, "clauses": clauses}])
    record = claim_result(tmp_path, contract=contract, measurements=healthy(returned=2)).record
    handle = annotations.handler()
    assert handle is not None
    handle(ClaimPlanned(contract, "reduced", "", record.device, ()))
    handle(ClaimFinished(record, None))
    handle(ClaimPassedOver(record.id, Verdict.FAIL, "FALSIFIED", is_news=level == "error"))
    assert levels == [level, level]
