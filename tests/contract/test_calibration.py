"""The calibration next to a contract: bound by digest, and refused where it does not fit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.contract import ContractError
from harness.contract.project import Project
from harness.lint import Severity
from harness.tools.calibrate.lint import about_calibration
from tests.contracts import IDENTIFIER, document, write_calibrated, write_contract, write_project

_MUTANT = {**document()["mutants"][0], "violates": ["ordered", "nothing-lost", "error.maximum", "last.minimum"]}
_RATIOS = {"full": {"forgets-one": {"ordered": 3.0, "error.maximum": 2.0}}}


def content(**changes: Any) -> dict[str, Any]:
    """A contract whose mutant violates clauses with and without a threshold; the reduced profile omits one."""
    whole = document(mutants=[_MUTANT], **changes)
    number = {"type": "number", "x-source": "a test"}
    whole["observation"]["properties"] |= {"error": {**number, "maximum": 0.5}, "last": {**number, "minimum": 2.0}}
    whole["profiles"]["reduced"]["omits"] = ["last"]
    return whole


def places(root: Path) -> list[str]:
    """The JSON pointers of the problems of the project's contract."""
    with pytest.raises(ContractError) as caught:
        Project.find(root).contract(IDENTIFIER)
    return [problem.pointer for problem in caught.value.problems]


def outdated(root: Path) -> list[str]:
    """The JSON pointers of what the schema refuses, else of what `harness lint` finds, in the calibration."""
    project = Project.find(root)
    try:
        contract = project.contract(IDENTIFIER)
    except ContractError as error:
        return [problem.pointer for problem in error.problems]
    found = list(about_calibration(contract, project))
    assert all((finding.rule, finding.severity) == ("calibration-outdated", Severity.ERROR) for finding in found)
    return [finding.pointer for finding in found]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project without a contract."""
    root = write_project(tmp_path)
    (root / "contracts" / "demo" / IDENTIFIER / "contract.json").unlink()
    return root


def test_ratios_by_profile_and_clause(project: Path) -> None:
    """The mutants come from the calibration; the calibration file is not taken for a contract."""
    write_calibrated(project, content(), _RATIOS)
    found = Project.find(project)
    contract = found.contract(IDENTIFIER)
    assert contract.ratios("forgets-one") == {"full": {"ordered": 3.0, "error.maximum": 2.0}}
    assert contract.ratios("another") == {}
    assert [path.parent.name for path in found.files()] == [IDENTIFIER]


def test_no_calibration_has_no_ratios(project: Path) -> None:
    write_contract(project, content())
    assert Project.find(project).contract(IDENTIFIER).ratios("forgets-one") == {}


def test_every_byte_is_bound(project: Path) -> None:
    """A changed, a missing and an unnamed calibration file are refused."""
    path = write_calibrated(project, content(), _RATIOS)
    path.write_bytes(path.read_bytes() + b"\n")
    assert places(project) == ["/calibration"]
    write_contract(project, content())
    assert places(project) == ["/calibration"]
    write_calibrated(project, content(), _RATIOS).unlink()
    assert places(project) == ["/calibration"]


@pytest.mark.parametrize(
    ("ratios", "place"),
    [
        ({"full": {"forgets-one": {"nothing-lost": 2.0}}}, "full/mutants/forgets-one/nothing-lost"),
        ({"full": {"forgets-one": {"smallest.type": 2.0}}}, "full/mutants/forgets-one/smallest.type"),
        ({"full": {"forgets-one": {"ordered": 1.0}}}, "full/mutants/forgets-one/ordered"),
        ({"full": {"forgets-one": {}}}, "full/mutants/forgets-one"),
        ({"full": {"forgets-two": {"ordered": 2.0}}}, "full/mutants/forgets-two"),
        ({"reduced": {"forgets-one": {"last.minimum": 2.0}}}, "reduced/mutants/forgets-one/last.minimum"),
        ({"small": {}}, "small"),
    ],
)
def test_ratios_are_of_clauses_that_the_mutant_violates_and_the_profile_judges(
    project: Path, ratios: dict[str, Any], place: str
) -> None:
    """Ratios need a threshold: a bound above 0, or a rule that compares."""
    write_calibrated(project, content(), ratios)
    assert outdated(project) == [f"/calibration/profiles/{place}"]


def test_ratios_are_of_a_profile_that_there_is(project: Path) -> None:
    whole = content()
    del whole["profiles"]["reduced"]
    write_calibrated(project, whole, {"reduced": {"forgets-one": {"ordered": 2.0}}})
    assert outdated(project) == ["/calibration/profiles/reduced"]


def test_a_calibration_of_another_claim(project: Path) -> None:
    path = write_calibrated(project, content(), _RATIOS)
    other = write_calibrated(project, {**content(), "id": "F-DEMO-OTHER-001"}, _RATIOS)
    named = json.loads((other.parent.with_name("F-DEMO-OTHER-001") / "contract.json").read_text())["calibration"]
    path.write_bytes(other.read_bytes())
    write_contract(project, {**content(), "calibration": named})
    assert places(project) == ["/calibration/id"]


def test_notes_are_the_markdown_file_next_to_the_contract(project: Path) -> None:
    path = write_contract(project, content())
    assert Project.find(project).contract(IDENTIFIER).notes == ""
    path.with_name("notes.md").write_text("Why three items.\n", encoding="utf-8")
    assert Project.find(project).contract(IDENTIFIER).notes == "Why three items.\n"


def test_a_calibration_that_cannot_be_read(project: Path) -> None:
    """A folder in place of the calibration is refused."""
    path = write_calibrated(project, content(), _RATIOS)
    path.unlink()
    path.mkdir()
    assert places(project) == ["/calibration"]


def test_a_calibration_that_is_no_json(project: Path) -> None:
    """The contract names the digest of the file, so the file is read and refused."""
    content_of_file = b'{"id": 1, "id": 2}'
    contract = write_contract(project, {**content(), "calibration": hashlib.sha256(content_of_file).hexdigest()})
    contract.with_name("calibration.json").write_bytes(content_of_file)
    assert places(project) == ["/calibration/id"]
