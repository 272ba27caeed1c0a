"""`harness list` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.base.vocabulary import ExitStatus
from harness.cli.list import command
from harness.contract.project import Project
from harness.evidence.survey import Survey
from tests.cli.harness_command import harness
from tests.contracts import document, write_contract, write_project

OTHER = document(id="F-DEMO-A-LONGER-NAME-002", issue="DEMO-20", title="Another")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two claims."""
    return write_project(tmp_path, document(), OTHER)


def test_a_line_a_claim_in_columns(project: Path) -> None:
    """Claims are listed by spec and issue, with their number, from any folder of the project."""
    done = harness(project / "falsifiers" / "demo", "list")
    assert (done.returncode, done.stderr) == (ExitStatus.PASS, "")
    assert done.stdout.splitlines() == [
        "SPEC-DEMO-001, DEMO-1",
        "  F-DEMO-SORT-001           Sorting keeps every item",
        "SPEC-DEMO-001, DEMO-20",
        "  F-DEMO-A-LONGER-NAME-002  Another",
        f"2 claims under {project / 'contracts'}",
    ]


def test_json_for_machines(project: Path) -> None:
    """The JSON has the same content."""
    rows = json.loads(harness(project, "list", "--json").stdout)["claims"]
    assert [row["id"] for row in rows] == ["F-DEMO-A-LONGER-NAME-002", "F-DEMO-SORT-001"]
    assert rows[1] == {
        "id": "F-DEMO-SORT-001",
        "issue": "DEMO-1",
        "spec": "SPEC-DEMO-001",
        "title": "Sorting keeps every item",
        "from": str(project / "contracts"),
    }


def test_installed_claims_that_never_ran(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Installed claims are listed in their own part. A survey leaves out those that never ran."""
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    write_project(tmp_path / "site" / "harness_claims" / "theirs", document(id="F-THEIRS-ONE-001"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = Project.find(project)
    survey = Survey.of(found)
    assert [claim.id for claim in survey.claims] == ["F-DEMO-A-LONGER-NAME-002", "F-DEMO-SORT-001"]
    monkeypatch.chdir(project)
    lines = CliRunner().invoke(command, standalone_mode=False).output.splitlines()
    theirs = tmp_path / "site" / "harness_claims" / "theirs" / "contracts"
    assert ["F-THEIRS-ONE-001" in line for line in lines[1:3]] == [True, False]
    assert (lines[2], lines[-1]) == (f"1 claim installed in {theirs}", f"2 claims under {project / 'contracts'}")


@pytest.mark.parametrize("text", ["{}", "no JSON", "[]", '{"id": NaN}'])
def test_a_file_that_is_no_contract(project: Path, text: str) -> None:
    """It is named, the claims are still listed, and the exit status is not 0."""
    path = write_contract(project, text, "F-BROKEN-001")
    done = harness(project, "list")
    assert done.returncode == ExitStatus.REFUSED
    assert "2 claims" in done.stdout
    assert done.stderr.startswith(f"{path}: not a contract: ")


def test_a_project_without_claims(tmp_path: Path) -> None:
    """An empty list is not success: the exit status is not 0."""
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\n")
    done = harness(tmp_path, "list")
    assert (done.returncode, done.stdout) == (ExitStatus.NOT_MEASURED, f"0 claims under {tmp_path / 'contracts'}\n")
