"""CTRF reports against the published schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from jsonschema import Draft7Validator

from harness.tools.ci_reports import ctrf
from harness.tools.text_report import BundleResult
from tests.evidence.factory import claim_result
from tests.report.bundles import every_verdict, examined, unsound
from tests.report.texts import nasty, with_texts

SCHEMA = Path(__file__).parents[2] / "recorded" / "schemas" / "ctrf-schema-0.0.json"
VALIDATOR = Draft7Validator(json.loads(SCHEMA.read_text()), format_checker=Draft7Validator.FORMAT_CHECKER)
SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def results(bundles: Sequence[BundleResult]) -> dict[str, Any]:
    """The results of a valid report with correct counts."""
    document = json.loads(ctrf.render(bundles))
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []
    found: dict[str, Any] = document["results"]
    statuses = Counter(test["status"] for test in found["tests"])
    counts = {name: found["summary"][name] for name in ("passed", "failed", "skipped", "pending", "other")}
    assert {name: count for name, count in counts.items() if count} == statuses
    assert found["summary"]["tests"] == len(found["tests"])
    return found


def test_every_verdict_is_told(tmp_path: Path) -> None:
    """NOT_MEASURED, VOID and unsound count neither as passed nor as pending."""
    for bundle in every_verdict(tmp_path):
        found = results([bundle])
        summary = found["summary"]
        match "UNSOUND" if bundle.record is None else str(bundle.record.verdict):
            case "PASS":
                assert (summary["failed"], summary["other"]) == (0, 0)
            case "NOT_MEASURED":
                assert summary["other"] > 0
            case _:
                assert summary["failed"] > 0
        assert summary["pending"] == 0
        for test in found["tests"]:
            assert (test["status"] == "passed") == (test["rawStatus"] == "PASS")


def test_times_and_circumstances_are_told(tmp_path: Path) -> None:
    """Times are milliseconds since 1970. A list of tests shows the qualifications."""
    bundles = [bundle for bundle in every_verdict(tmp_path) if bundle.record and bundle.record.run == "e-unproven"]
    found = results(bundles)
    assert (found["summary"]["start"], found["summary"]["stop"]) == (1795205703000, 1795205707500)
    test = found["tests"][0]
    assert test["tags"] == ["PASS", "UNPROVEN", "reduced profile"]
    assert test["extra"]["device"] == "cpu a CPU"
    assert test["duration"] == 1250
    assert sum(test["duration"] for test in found["tests"]) == 1250


def test_a_time_beyond_any_is_told_as_a_number(tmp_path: Path) -> None:
    """A bundle is not trusted. If its time is infinite, the other claims are still reported."""
    record = claim_result(tmp_path, seconds=1e308, trial_seconds=1e308).record
    summary = results([examined(record)])["summary"]
    assert summary["stop"] - summary["start"] == 10**12


def test_no_bundle_is_a_failure() -> None:
    """A report without bundles is a failure, because zero tests would look like success."""
    (test,) = results([])["tests"]
    nothing = ctrf.cases.NOTHING
    assert (test["status"], test["name"]) == ("failed", f"{nothing.claim} {nothing.name}")


@SETTINGS
@given(text=nasty)
def test_whatever_a_text_holds_the_report_is_of_the_schema(tmp_path: Path, text: str) -> None:
    """The report is valid and UTF-8 for any text."""
    found = results([examined(with_texts(tmp_path, text)), unsound(text)])
    assert found["summary"]["suites"] == 2
    assert ctrf.render([unsound(text)]).isascii()
