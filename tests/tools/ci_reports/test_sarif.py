"""SARIF reports against the published schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from harness.base.vocabulary import Verdict
from harness.evidence.findings import Code, Detail, Finding
from harness.report.contract_file import ContractFile
from harness.tools.ci_reports import sarif
from harness.tools.text_report import BundleResult
from tests.contracts import document, healthy
from tests.evidence.factory import DEFECTIVE, claim_result
from tests.report.bundles import every_verdict, examined, unsound
from tests.report.texts import nasty, with_texts

SCHEMA = Path(__file__).parents[2] / "recorded" / "schemas" / "sarif-2.1.0.json"
VALIDATOR = Draft202012Validator(json.loads(SCHEMA.read_text()), format_checker=Draft202012Validator.FORMAT_CHECKER)
SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def run_of(bundles: Sequence[BundleResult]) -> dict[str, Any]:
    """The run of a valid report that also keeps the rules outside the schema."""
    document = json.loads(sarif.render(bundles))
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert (result["kind"], result["level"]) == ("fail", "error")
        assert result["message"]["text"]
    found: dict[str, Any] = run
    return found


def test_every_verdict_is_told(tmp_path: Path) -> None:
    """Only findings against a claim are results. With NOT_MEASURED, the run is no success."""
    expected = {
        "a-pass": (set(), True),
        "b-fail": ({"fail"}, True),
        "c-void": ({"fail"}, False),
        "d-nothing": (set(), False),
        "e-unproven": (set(), True),
        "f-tampered": ({"fail"}, False),
    }
    for bundle in every_verdict(tmp_path):
        run = run_of([bundle])
        (invocation,) = run["invocations"]
        kinds = {result["kind"] for result in run["results"]}
        assert (kinds, invocation["executionSuccessful"]) == expected[bundle.path.name]
        assert invocation["executionSuccessful"] == (not invocation["toolExecutionNotifications"])


def failing(folder: Path, **changes: Any) -> BundleResult:
    """A bundle of a claim whose rule `nothing-lost` is violated."""
    result = claim_result(folder, measurements=healthy(returned=2))
    changed = examined(replace(result.record, **changes))
    return replace(changed, contract=ContractFile.of(result.contract))


def test_a_failed_clause_is_at_its_line_of_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The alert has value and bound. Two runs on one class of device are one alert."""
    monkeypatch.chdir(tmp_path)
    bundle = failing(tmp_path)
    (result,) = run_of([bundle])["results"]
    assert result["ruleId"] == "F-DEMO-SORT-001/nothing-lost"
    rule = next(rule for rule in document()["rules"] if rule["id"] == "nothing-lost")
    assert result["message"]["text"].startswith(f"FAIL: {rule['message']}")
    (location,) = result["locations"]
    place = location["physicalLocation"]
    line = Path(place["artifactLocation"]["uri"]).read_text().splitlines()[place["region"]["startLine"] - 1]
    assert '"id": "nothing-lost"' in line
    (again,) = run_of([failing(tmp_path, run="another")])["results"]
    assert again["partialFingerprints"] == result["partialFingerprints"]
    record = bundle.record
    assert record is not None
    (elsewhere,) = run_of([failing(tmp_path, device=replace(record.device, name="another"))])["results"]
    assert elsewhere["partialFingerprints"] != result["partialFingerprints"]


def test_a_surviving_mutant_is_at_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = claim_result(tmp_path, mutants={**DEFECTIVE, "forgets-one": {}})
    bundle = replace(examined(result.record), contract=ContractFile.of(result.contract))
    (found,) = run_of([bundle])["results"]
    place = found["locations"][0]["physicalLocation"]
    line = Path(place["artifactLocation"]["uri"]).read_text().splitlines()[place["region"]["startLine"] - 1]
    assert '"id": "forgets-one"' in line


@pytest.mark.parametrize(
    ("later", "findings"),
    [
        ({}, 0),
        ({"proven": False}, 1),
        ({"started": "2026-11-19T00:00:00+00:00"}, 1),
        ({"verdict": Verdict.NOT_MEASURED}, 1),
        ({"subject": "falsifiers.demo.sorting:Other"}, 1),
        ({"overrides": {"steps": 5}}, 1),
        ({"profile": "full"}, 0),
        ({"profile": "full", "verdict": Verdict.VOID}, 1),
    ],
    ids=str,
)
def test_a_finding_is_open_until_a_later_run_answers_it(tmp_path: Path, later: Any, findings: int) -> None:
    """After a FAIL of the reduced profile, only a proven PASS of the same subject closes the finding."""
    record = claim_result(tmp_path).record
    changes = {"started": "2026-11-21T00:00:00+00:00", "run": "later", "mutants": (), **later}
    others = [examined(replace(record, **changes))]
    open_ = [
        result
        for result in run_of([failing(tmp_path), *others])["results"]
        if result["ruleId"].endswith("nothing-lost")
    ]
    assert len(open_) == findings


def test_of_two_failing_runs_one_is_open(tmp_path: Path) -> None:
    """The newer one is open. A run whose code has changed since is not open."""
    older, newer = failing(tmp_path), failing(tmp_path, run="later", started="2026-11-21T00:00:00+00:00")
    (only,) = run_of([older, newer])["results"]
    assert only["properties"]["run"] == "later"
    changed = Finding(Code.STALE_SUBJECT, Detail.REFUSED_FILE, "x", fields={"text": "x"})
    stale = replace(newer, verification=replace(newer.verification, remarks=(changed,)))
    assert run_of([stale])["results"] == []


def test_the_counts_have_a_denominator(tmp_path: Path) -> None:
    """A file without results names the number of claims."""
    properties = run_of(every_verdict(tmp_path))["properties"]
    assert properties["bundles"] == 6
    assert properties["verdicts"] == {"FAIL": 1, "NOT_MEASURED": 1, "PASS": 2, "UNSOUND": 1, "VOID": 1}
    assert Counter(properties["cases"])["PASS"] > 0


def test_no_bundle_is_no_success() -> None:
    """A run without bundles is no success, because nothing ran."""
    run = run_of([])
    assert [result["kind"] for result in run["results"]] == ["fail"]
    assert not run["invocations"][0]["executionSuccessful"]


@SETTINGS
@given(text=nasty)
def test_whatever_a_text_holds_the_report_is_of_the_schema(tmp_path: Path, text: str) -> None:
    """The report is ASCII."""
    bundles = [examined(with_texts(tmp_path, text)), unsound(text)]
    run_of(bundles)
    assert sarif.render(bundles).isascii()
