"""Finding a project, its contracts, and one claim among them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.contract import ContractError
from harness.contract.project import Project, ProjectError
from tests.contracts import IDENTIFIER, document, write_contract, write_project


def test_found_from_a_folder_inside(project: Project) -> None:
    """A project is the nearest folder upwards that says that it is one."""
    inner = project.root / "contracts" / "demo"
    assert project == Project.find(inner)


def test_the_nearest_project_wins(project: Project) -> None:
    """A project inside another is separate."""
    inner = write_project(project.root / "inner")
    assert inner == Project.find(inner).root


def test_a_pyproject_without_our_table_is_passed_over(project: Project) -> None:
    """A package with its own pyproject.toml does not hide the project around it."""
    inner = project.root / "package"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    assert project == Project.find(inner)


def test_where_there_is_no_project(tmp_path: Path) -> None:
    """Outside a project the error has the remedy."""
    with pytest.raises(ProjectError, match="harness init"):
        Project.find(tmp_path)


@pytest.mark.parametrize(
    "settings",
    ['contracts = "../elsewhere"', 'evidence = "/tmp"', 'pythonpath = ["."  , ".."]', "contracts = 3"],
)
def test_settings_that_are_wrong(tmp_path: Path, settings: str, snapshot: SnapshotAssertion) -> None:
    """Folders outside the project are refused."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.harness]\n{settings}\n", encoding="utf-8")
    with pytest.raises(ProjectError) as error:
        Project.find(tmp_path)
    assert str(error.value).replace(str(tmp_path), "PROJECT") == snapshot


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    """The error names it."""
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\ncontracts = \n", encoding="utf-8")
    with pytest.raises(ProjectError, match=r"pyproject\.toml"):
        Project.find(tmp_path)


def test_a_folder_that_is_linked_outside(tmp_path: Path) -> None:
    """A link does not lead the harness out of the project."""
    (tmp_path / "outside").mkdir()
    root = write_project(tmp_path / "project")
    (root / "linked").symlink_to(tmp_path / "outside")
    (root / "pyproject.toml").write_text('[tool.harness]\nevidence = "linked"\n', encoding="utf-8")
    with pytest.raises(ProjectError, match=r"tool\.harness\.evidence .*'linked'"):
        Project.find(root)


def test_harness_that_is_no_table(tmp_path: Path) -> None:
    """`tool.harness` must be a table."""
    (tmp_path / "pyproject.toml").write_text("[tool]\nharness = 1\n", encoding="utf-8")
    with pytest.raises(ProjectError, match=r"tool\.harness\b"):
        Project.find(tmp_path)


def test_schemas_are_no_contracts(project: Project) -> None:
    """The folder of schemas inside contracts/ has no contracts. Files are sorted by name."""
    other = write_contract(project.root, document(id="F-DEMO-AAA-001"))
    (project.contracts / "schema").mkdir()
    (project.contracts / "schema" / "contract.schema.json").write_text("{}", encoding="utf-8")
    assert [other, other.with_name(f"{IDENTIFIER}.json")] == project.files()


def test_a_claim_is_found_by_its_id(project: Project) -> None:
    assert project.contract(IDENTIFIER).path == project.contracts / "demo" / f"{IDENTIFIER}.json"


def test_a_claim_that_is_not_there(project: Project) -> None:
    """The error suggests the nearest one."""
    with pytest.raises(ProjectError, match=f"did you mean {IDENTIFIER}"):
        project.contract("F-DEMO-SROT-001")


def test_one_claim_has_one_contract(project: Project) -> None:
    """Two files with one id are refused."""
    twin = project.contracts / "other" / f"{IDENTIFIER}.json"
    twin.parent.mkdir()
    twin.write_bytes((project.contracts / "demo" / f"{IDENTIFIER}.json").read_bytes())
    with pytest.raises(ProjectError, match="has 2 contracts"):
        project.contract(IDENTIFIER)
    contracts, refused = project.load_all()
    pointers = [problem.pointer for error in refused for problem in error.problems]
    expected = ([IDENTIFIER], ["/id"])
    assert expected == ([contract.id for contract in contracts], pointers)


def test_a_refused_contract_does_not_hide_the_others(project: Project) -> None:
    """Loading all of them returns the sound and the refused ones."""
    broken = write_contract(project.root, "{", name="F-DEMO-BROKEN-001")
    contracts, refused = project.load_all()
    assert ([IDENTIFIER], [broken]) == ([contract.id for contract in contracts], [error.path for error in refused])
    with pytest.raises(ContractError):
        project.contract("F-DEMO-BROKEN-001")


def test_a_folder_that_cannot_be_opened_hides_no_other(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of two folders it is, the contract in the other one is found."""
    write_contract(project.root, document(id="F-DEMO-AAA-001")).rename(project.contracts / "F-DEMO-AAA-001.json")
    (project.contracts / "a").mkdir()
    (project.contracts / "b").mkdir()
    for name in ("a", "b"):
        (project.contracts / name / f"F-{name}.json").touch()
    scandir, closed = os.scandir, list[str]()

    def opened(path: str | Path) -> Any:
        if Path(path).name in "ab" and not closed:
            closed.append(str(path))
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", opened)
    found = {path.name for path in project.files()}
    assert closed
    assert {"F-DEMO-AAA-001.json", f"{IDENTIFIER}.json"} <= found
    assert len(found & {"F-a.json", "F-b.json"}) == 1
