"""Clauses that the reduced profile omits are not judged, and every report says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract import Contract
from harness.contract.project import Project
from harness.evidence.findings import Detail
from harness.evidence.staleness import coverage
from harness.evidence.verification import verify
from harness.judging.judge import judge
from harness.judging.record import Record
from harness.lint import lint
from harness.report.terminal.run_text import qualities, unjudged_text
from harness.tools.ci_reports import cases
from harness.tools.search.lint import about_both_ways
from tests.cli.harness_command import harness
from tests.contracts import FALSIFIER, IDENTIFIER, contract_of, document, healthy, observe, write_project
from tests.evidence.factory import MUTANTS, claim_result, contract_in, rewrite, sealed
from tests.refusals import changed, refused

_NAMES = sorted(healthy())
_LATE = {"id": "late", "subject": "falsifiers.demo.sorting:Late", "violates": ["ordered"], "defect": "comes late"}
_UNJUDGED = ("ordered", "largest.type")


def omitting(*names: str, mutants: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The valid contract whose reduced profile omits these measurements."""
    profiles = document()["profiles"]
    profiles["reduced"]["omits"] = list(names)
    return document(profiles=profiles, mutants=mutants or MUTANTS)


@given(st.sets(st.sampled_from(_NAMES), min_size=1, max_size=3), st.sampled_from(["full", "reduced"]))
def test_each_clause_is_judged_or_named_as_not_judged(names: set[str], profile: str) -> None:
    """Each clause is in one of two lists: judged or not judged. A clause on an omitted measurement has no outcome."""
    contract = contract_of(omitting(*names))
    left = {name: value for name, value in healthy().items() if profile == "full" or name not in names}
    judgment = judge(contract, observe(left, profile=profile))
    own = {clause.id for clause in (*contract.clauses, *contract.rules)}
    judged = {clause.id for clause in judgment.clauses} & own
    assert judgment.outcome is Outcome.PASS
    assert judged.isdisjoint(judgment.unjudged)
    assert judged.union(judgment.unjudged) == own
    assert bool(judgment.unjudged) == (profile == "reduced")


def test_what_is_omitted_and_was_measured_all_the_same_is_judged() -> None:
    """An omitted measurement is judged if it was measured, for example on a machine with a GPU."""
    contract = contract_of(omitting("largest"))
    assert judge(contract, observe(healthy())).unjudged == ()
    judgment = judge(contract, observe(healthy(largest=0.5)))
    assert [clause.id for clause in judgment.with_outcome(Outcome.FAIL)] == ["ordered"]


def test_the_full_profile_misses_what_the_reduced_one_omits() -> None:
    """If a measurement that the profile does not omit is missing, its clauses are NOT_MEASURED."""
    judgment = judge(contract_of(omitting("largest")), observe(healthy(largest=...), profile="full"))
    assert {clause.id for clause in judgment.with_outcome(Outcome.NOT_MEASURED)} == set(_UNJUDGED)


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (omitting("larges"), "/profiles/reduced/omits"),
        (omitting(*_NAMES), "/profiles/reduced/omits"),
        (changed("profiles", "reduced", "omits", to=[]), "/profiles/reduced/omits"),
        (changed("profiles", "full", "omits", to=["largest"]), "/profiles/full/omits"),
    ],
)
def test_refusals(project: Project, content: dict[str, Any], pointer: str, snapshot: Any) -> None:
    """The full profile must omit nothing, and the reduced one must keep a clause. A snapshot has the messages."""
    (found,) = refused(project, content)
    assert found.pointer == pointer
    assert str(found) == snapshot


def test_lint_knows_what_a_profile_omits() -> None:
    """Lint finds a profile in which every mutant violates only omitted clauses."""
    sound = contract_of(omitting("largest"))
    assert [*lint(sound), *about_both_ways(sound)] == []
    found = lint(contract_of(omitting("largest", mutants=[_LATE])))
    assert [finding.rule for finding in found] == ["mutants-omitted"]


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    """A contract whose reduced profile omits the order."""
    return contract_in(tmp_path / "contract", profiles=omitting("largest")["profiles"])


def record_of(folder: Path, contract: Contract) -> Record:
    """The record of a healthy subject in the reduced profile."""
    healthy_one = {name: value for name, value in healthy().items() if name != "largest"}
    defective: dict[str, dict[str, Any]] = {
        "forgets-one": {"returned": 2, "largest": ...},
        "stops-early": {"given": 2, "returned": 2, "largest": ...},
    }
    return claim_result(folder, contract=contract, measurements=healthy_one, mutants=defective).record


def test_every_view_says_what_was_not_judged(tmp_path: Path, contract: Contract) -> None:
    """The terminal, the cases for CI, and the remarks on a bundle name the clauses that were not judged."""
    record = record_of(tmp_path, contract)
    assert record.verdict is Verdict.PASS
    assert record.unjudged == _UNJUDGED
    assert "reduced profile on CPU, 2 clauses not judged in it" in qualities(record)
    assert (
        unjudged_text(record) == "not judged in the reduced profile, which does not measure it: ordered and 1 on types"
    )
    claim, *_ = cases.of_record(record)
    assert "not judged in the reduced profile: ordered and 1 on types" in claim.details
    (remark,) = [remark for remark in coverage(record, contract.subject) if remark.code == "REDUCED_PROFILE"]
    assert (remark.detail, remark.fields["clauses"]) == (Detail.CLAUSES_NOT_JUDGED, "ordered and 1 on types")
    assert Record.from_json(record.to_json()) == record


def test_a_record_cannot_hide_it(tmp_path: Path, contract: Contract) -> None:
    """The record names the omissions. If they differ from the contract's, the bundle is unsound."""
    healthy_one = {name: value for name, value in healthy().items() if name != "largest"}
    defective: dict[str, dict[str, Any]] = {
        "forgets-one": {"returned": 2, "largest": ...},
        "stops-early": {"given": 2, "returned": 2, "largest": ...},
    }
    bundle = sealed(tmp_path, contract=contract, measurements=healthy_one, mutants=defective)
    assert verify(bundle).findings == ()
    rewrite(bundle, "record.json", lambda record: record.update(unjudged=[]))
    assert "/unjudged" in {finding.pointer for finding in verify(bundle).findings}


_MEASURES_LATER = """\
    if trial.parameters["time"]:
        trial.measure(largest=max(result))
    trial.resolve"""
_RUNNABLE = FALSIFIER.replace("largest=max(result), ", "").replace("    trial.resolve", _MEASURES_LATER)


def test_a_run_leaves_out_what_the_profile_omits(tmp_path: Path) -> None:
    """Mutants on omitted clauses do not run and do not count as killed."""
    content = omitting("largest", mutants=[document()["mutants"][0], {**_LATE, "subject": MUTANTS[0]["subject"]}])
    for name, profile in content["profiles"].items():
        profile["parameters"]["time"] = name == "full"
    # The test must import this repository's own `falsifiers`, not that of a project of the test.
    elsewhere: dict[str, Any] = json.loads(json.dumps(content).replace("falsifiers.demo.sorting", "sorting_in_time"))
    root = write_project(tmp_path, elsewhere)
    (root / "sorting_in_time.py").write_text(_RUNNABLE, encoding="utf-8")
    done = harness(root, "run", IDENTIFIER, "--profile", "reduced")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "late (violates ordered, which the reduced profile does not judge)" in done.stdout
    assert "1 of 2 mutants killed, 1 not run" in done.stdout
    assert (
        "  not judged in the reduced profile, which does not measure it: ordered and 1 on types"
        in done.stdout.splitlines()
    )
    (path,) = root.glob("evidence/*/*/*/record.json")
    assert [load["fate"] for load in json.loads(path.read_text())["mutants"]] == [Fate.KILLED, Fate.NOT_RUN]
    shown = " ".join(harness(root, "show", IDENTIFIER).stdout.split())
    assert "omits largest: ordered, largest.type not judged" in shown
