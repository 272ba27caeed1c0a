"""Files that a subject leaves in its folders end no run and change no verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.redaction import Redactor
from harness.contract.project import Project
from harness.evidence import artifacts
from harness.execution import fork_server
from harness.execution.local_executor import LocalExecutor
from harness.judging.observation import EndingKind
from tests.execution.projects import run, write_project


def test_a_maze_is_removed(project: Project, tmp_path: Path) -> None:
    """Deep folders, closed ones, pipes, sockets and links are removed with the trial, without a remark."""
    remarks: list[str] = []
    contract = project.contract("F-TOY-SORT-001")
    with LocalExecutor(project, contract, tmp_path / "cache", remark=remarks.append) as executor:
        result = run(executor, "leaves a maze")
        assert result.observation.ending.kind is EndingKind.COMPLETED
        assert result.artifacts is not None
        assert [path.name for path in result.artifacts.path.parent.iterdir()] == ["artifacts"]
    assert not executor._server.folder.exists()
    assert remarks == []


def test_links_in_place_of_the_folders_lead_nowhere(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link in place of a folder is not followed, so nothing there is removed or copied. The index names the link."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = tmp_path / "elsewhere" / "kept.txt"
    kept.parent.mkdir()
    kept.write_text("not an artifact")
    with LocalExecutor(project, project.contract("F-TOY-SORT-001"), tmp_path / "cache") as executor:
        result = run(executor, "puts links in place of its folders")
        assert result.artifacts is not None
        ((found, content),) = artifacts.collect(result.artifacts, Redactor())
    assert (found is not None and found.name, found and found.copied, content) == (".", False, b"")
    assert kept.read_text() == "not an artifact"
    assert not executor._server.folder.exists()


def test_what_cannot_be_removed_is_remarked(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path that cannot be removed is remarked once, after the trials."""
    remarks: list[str] = []
    contract = project.contract("F-TOY-SORT-001")
    monkeypatch.setattr(fork_server, "remove", lambda place: [f"{place}/mount: Device or resource busy"])
    with LocalExecutor(project, contract, tmp_path / "cache", remark=remarks.append) as executor:
        pass
    assert [remark.partition(": ")[2] for remark in remarks] == [
        f"{executor._server.folder}/mount: Device or resource busy"
    ]


@pytest.mark.parametrize("answer", [b"{\n", b'["Imports", {"failures": {}, "sources": {"late.py": 5}}]\n'])
def test_a_module_that_forges_the_answer_to_its_import(tmp_path: Path, answer: bytes) -> None:
    """The trials do not run, and the run continues."""
    project = write_project(tmp_path)
    forging = f"""
import os
for descriptor in range(3, 64):
    try:
        if os.readlink(f"/proc/self/fd/{{descriptor}}").startswith("pipe:"):
            os.write(descriptor, {answer!r})
    except OSError:
        pass
"""
    (tmp_path / "toy" / "sorting.py").write_text(forging + (tmp_path / "toy" / "sorting.py").read_text())
    with LocalExecutor(project, project.contract("F-TOY-SORT-001"), tmp_path / "cache") as executor:
        assert list(executor.imports().failures) == ["fork server"]
        assert run(executor, "well").observation.ending.kind is EndingKind.LOST
