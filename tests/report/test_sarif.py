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

from harness.report import sarif
from harness.report.bundle_results import BundleResult
from tests.contracts import document, healthy
from tests.evidence.factory import claim_result
from tests.report.bundles import every_verdict, examined, unsound
from tests.report.texts import nasty, with_texts

SCHEMA = Path(__file__).parents[1] / "recorded" / "schemas" / "sarif-2.1.0.json"
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
        # SARIF 2.1.0, 3.27.10: a level other than none goes with kind fail alone.
        assert (result["level"] == "none") == (result["kind"] != "fail")
        assert result["message"]["text"]
    found: dict[str, Any] = run
    return found


def test_every_verdict_is_told(tmp_path: Path) -> None:
    """NOT_MEASURED is open and the run no success. A PASS raises no alert."""
    expected = {
        "a-pass": ({"notApplicable"}, True),
        "b-fail": ({"fail", "notApplicable"}, True),
        "c-void": ({"fail", "notApplicable"}, False),
        "d-nothing": ({"open", "notApplicable"}, False),
        "e-unproven": ({"notApplicable"}, True),
        "f-tampered": ({"fail"}, False),
    }
    for bundle in every_verdict(tmp_path):
        run = run_of([bundle])
        (invocation,) = run["invocations"]
        kinds = {result["kind"] for result in run["results"]}
        assert (kinds, invocation["executionSuccessful"]) == expected[bundle.path.name]
        assert invocation["executionSuccessful"] == (not invocation["toolExecutionNotifications"])


def test_a_failed_clause_names_value_bound_and_source(tmp_path: Path) -> None:
    """The subject's file if the bundle has it. Two runs on one device class are one alert."""
    record = claim_result(tmp_path, measurements=healthy(returned=2)).record
    bundles = [examined(record), examined(replace(record, run="another"))]
    failed = [result for result in run_of(bundles)["results"] if result["kind"] == "fail"]
    assert [result["ruleId"] for result in failed] == ["F-DEMO-SORT-001/nothing-lost"] * 2
    rule = next(rule for rule in document()["rules"] if rule["id"] == "nothing-lost")
    assert failed[0]["message"]["text"].startswith(f"FAIL: {rule['message']}")
    (location,) = failed[0]["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "falsifiers/demo/sorting.py"
    assert failed[0]["partialFingerprints"] == failed[1]["partialFingerprints"]
    elsewhere = replace(record, device=replace(record.device, type="cuda"))
    other = [result for result in run_of([examined(elsewhere)])["results"] if result["kind"] == "fail"]
    assert other[0]["partialFingerprints"] != failed[0]["partialFingerprints"]


def test_the_counts_have_a_denominator(tmp_path: Path) -> None:
    """A file without results names the number of claims."""
    properties = run_of(every_verdict(tmp_path))["properties"]
    assert properties["bundles"] == 6
    assert properties["verdicts"] == {"FAIL": 1, "NOT_MEASURED": 1, "PASS": 2, "UNSOUND": 1, "VOID": 1}
    assert Counter(properties["cases"])["PASS"] > 0


def test_no_bundle_is_no_success() -> None:
    """Nothing ran."""
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


@pytest.mark.parametrize("status", [one for one in sarif.Status if one is not sarif.Status.PASS])
def test_each_status_is_one_of_the_format(status: sarif.Status) -> None:
    """This test fails for a new one."""
    assert sarif._KINDS[status][0] in {"fail", "open", "notApplicable"}
