"""The statement of an attestation for each verdict, and that it stays the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage

from harness.base.vocabulary import Outcome, Verdict
from harness.judging.record import Record
from harness.tools.sign.attestation import statement
from tests.contracts import healthy
from tests.evidence.factory import DEFECTIVE, claim_result

RECORDED = Path(__file__).parents[1] / "recorded"
CLAIM = "F-DEMO-SORT-001"
SUBJECT = "falsifiers.demo.sorting:Sorter"
MANIFEST = "f" * 64
COVERED: dict[str, Any] = {"profile": "full", "target": {}}


def said(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """The predicate of a claim's result."""
    predicate: dict[str, Any] = document(claim_result(tmp_path, **changes).record)["predicate"]
    return predicate


def document(record: Record) -> dict[str, Any]:
    """The statement of a record."""
    return statement(record, SUBJECT, MANIFEST)


def listed(predicate: dict[str, Any]) -> dict[str, set[str]]:
    """The lists that have the claim and its mutants."""
    lists = {name: predicate[name] for name in ("passedTests", "warnedTests", "failedTests")}
    wanted = {CLAIM, *(f"{CLAIM}/mutants/{mutant}" for mutant in ("forgets-one", "stops-early", "silent-fallback"))}
    return {
        name: {identifier.removeprefix(f"{CLAIM}/mutants/") for identifier in wanted & set(ids)}
        for name, ids in lists.items()
    }


def test_a_pass_that_covers_the_claim_has_passed(tmp_path: Path) -> None:
    """Only what passed is in the list of passed tests. The mutant that could not run is in no list."""
    predicate = said(tmp_path, **COVERED)
    assert predicate["result"] == "PASSED"
    assert predicate["passedTests"][0] == CLAIM
    assert f"{CLAIM}/nothing-lost" in predicate["passedTests"]
    assert listed(predicate) == {
        "passedTests": {CLAIM, "forgets-one", "stops-early"}, "warnedTests": set(), "failedTests": set(),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"profile": "reduced"}, "REDUCED_PROFILE"),
        ({"target": {"device": "NVIDIA GB10"}}, "WRONG_TARGET"),
        ({"commit": {"revision": "c" * 40, "dirty": True, "reason": None}}, "DIRTY_TREE"),
        ({"commit": {"revision": None, "dirty": None, "reason": "no git"}}, "DIRTY_TREE"),
        ({"overrides": {"steps": 5}}, "OVERRIDDEN"),
        ({"subject": "falsifiers.demo.sorting:Other"}, "OTHER_SUBJECT"),
    ],
)
def test_a_pass_that_covers_less_is_warned_of(tmp_path: Path, changes: dict[str, Any], code: str) -> None:
    """The result is WARNED, and the remark's code is listed too."""
    predicate = said(tmp_path, **{**COVERED, **changes})
    assert predicate["result"] == "WARNED"
    assert predicate["warnedTests"] == [CLAIM, f"{CLAIM}/remarks/{code}"]
    assert CLAIM not in predicate["passedTests"]


def test_a_pass_without_proof_is_warned_of(tmp_path: Path) -> None:
    """The result is WARNED, and no mutant is in the list of passed tests."""
    predicate = said(tmp_path, skipped=True, **COVERED)
    assert predicate["result"] == "WARNED"
    assert predicate["warnedTests"] == [CLAIM, f"{CLAIM}/remarks/MUTANTS_SKIPPED"]
    assert not any("/mutants/" in name for name in predicate["passedTests"])


def test_a_fail_has_failed(tmp_path: Path) -> None:
    """The claim and the violated clauses have failed. The other clauses have passed."""
    predicate = said(tmp_path, measurements=healthy(returned=2), **COVERED)
    assert predicate["result"] == "FAILED"
    assert predicate["failedTests"][0] == CLAIM
    assert f"{CLAIM}/nothing-lost" in predicate["failedTests"]
    assert f"{CLAIM}/given.const" in predicate["passedTests"]


def test_what_was_not_measured_is_in_no_list(tmp_path: Path) -> None:
    """The claim is in no list. The result is FAILED, so that no policy accepts it."""
    predicate = said(tmp_path, measurements={}, **COVERED)
    assert predicate["result"] == "FAILED"
    assert listed(predicate)["failedTests"] == set()
    assert not any(name == CLAIM or name.endswith("nothing-lost") for name in predicate["passedTests"])


def test_void_is_not_passed(tmp_path: Path) -> None:
    """The surviving mutant has failed. The claim is in no list."""
    predicate = said(tmp_path, mutants={**DEFECTIVE, "forgets-one": {}}, **COVERED)
    assert predicate["result"] == "FAILED"
    assert listed(predicate) == {"passedTests": {"stops-early"}, "warnedTests": set(), "failedTests": {"forgets-one"}}


@pytest.mark.parametrize("dirty", [True, None])
def test_a_tree_with_changes_is_not_the_commit(tmp_path: Path, dirty: bool | None) -> None:
    """The statement names no commit if the tree had changes or may have had some."""
    clean = claim_result(tmp_path).record
    assert [item["name"] for item in document(clean)["subject"]] == ["MANIFEST.sha256", "commit"]
    assert document(clean)["subject"][1]["digest"] == {"gitCommit": "c" * 40}
    changed = claim_result(tmp_path, commit={"revision": "c" * 40, "dirty": dirty, "reason": None}).record
    assert [item["name"] for item in document(changed)["subject"]] == ["MANIFEST.sha256"]


def test_falsifier_subject_and_mutants_are_named_by_digest(tmp_path: Path) -> None:
    """The digests do not depend on the place of the modules. A file that is none of them has no role."""
    sources = {"src/falsifiers/demo/sorting.py": "1" * 64, "src/falsifiers/demo/__init__.py": "2" * 64}
    predicate = said(tmp_path, sources=sources)
    configuration = {item["name"]: item for item in predicate["configuration"]}
    roles = configuration["src/falsifiers/demo/sorting.py"]["annotations"]
    assert roles["falsifier"] == ["falsifiers.demo.sorting:falsify"]
    assert roles["subject"] == [SUBJECT]
    assert "falsifiers.demo.sorting:Forgetful" in roles["mutants"]
    assert "annotations" not in configuration["src/falsifiers/demo/__init__.py"]
    assert {item["digest"]["sha256"] for item in predicate["configuration"]} >= {"1" * 64, "2" * 64, "b" * 64}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_passed_means_pass(tmp_path: Path, data: st.DataObject) -> None:
    """For any record, even a contradictory one, no name is in two lists, and PASSED has no remarks."""
    record = claim_result(tmp_path).record
    clauses = tuple(replace(clause, outcome=data.draw(st.sampled_from(list(Outcome)))) for clause in record.clauses[:3])
    record = replace(
        record,
        verdict=data.draw(st.sampled_from(list(Verdict))),
        proven=data.draw(st.booleans()),
        mutants_skipped=data.draw(st.booleans()),
        profile=data.draw(st.sampled_from(["full", "reduced"])),
        overrides=data.draw(st.sampled_from([{}, {"steps": 1}])),
        clauses=clauses,
        target={},
    )
    predicate = document(record)["predicate"]
    lists = [set(predicate[name]) for name in ("passedTests", "warnedTests", "failedTests")]
    assert sum(map(len, lists)) == len(set().union(*lists))
    if predicate["result"] == "PASSED":
        assert (record.verdict, record.proven, record.mutants_skipped) == (Verdict.PASS, True, False)
        assert (record.profile, record.overrides, predicate["failedTests"]) == ("full", {}, [])
    if record.verdict is not Verdict.PASS:
        assert predicate["result"] == "FAILED"
        assert CLAIM not in predicate["passedTests"] + predicate["warnedTests"]
    if predicate["result"] != "FAILED":
        assert predicate["failedTests"] == []
    assert (CLAIM in predicate["passedTests"]) == (predicate["result"] == "PASSED")
    measured = {f"{CLAIM}/{clause.id}" for clause in clauses if clause.outcome is not Outcome.NOT_MEASURED}
    assert {f"{CLAIM}/{clause.id}" for clause in clauses} & set().union(*lists) == measured


def test_in_totos_own_definitions_take_it(tmp_path: Path) -> None:
    """Statement, predicate and descriptors are valid, with no field beyond the predicate's definition."""
    whole = document(claim_result(tmp_path).record)
    Statement.copy_from_pb(json_format.ParseDict(whole, StatementMessage())).validate()
    result = json_format.ParseDict(whole["predicate"], test_result_pb2.TestResult())
    for descriptor in result.configuration:
        ResourceDescriptor.copy_from_pb(descriptor).validate()
    assert set(whole["predicate"]) <= {field.json_name for field in test_result_pb2.TestResult.DESCRIPTOR.fields}


def test_what_was_signed_once_is_said_for_ever() -> None:
    """A statement that differs from the recorded one would make every attestation of its kind FORGED."""
    record = Record.from_json(json.loads((RECORDED / "statement-record.json").read_text()))
    assert document(record) == json.loads((RECORDED / "statement.json").read_text())
