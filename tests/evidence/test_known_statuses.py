"""Remembered statuses are valid until a file changes on which they depend."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.contract.project import Project
from harness.evidence import known_statuses as module
from harness.evidence.known_statuses import known_statuses, remember
from harness.evidence.walk import state_of, walk
from harness.machine.cache_folder import cache_folder
from harness.machine.file_memory import recall
from tests.contracts import document, write_contract, write_project
from tests.evidence.factory import sealed

SOURCE = "falsifiers/demo/sorting.py"
STATUSES = {"F-DEMO-SORT-001": "PROVEN"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one claim and one bundle, whose statuses are remembered in a folder of its own."""
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    found = Project.find(write_project(tmp_path / "project"))
    sealed(found.root)
    remember(found, found.known(), [SOURCE, "gone.py"], STATUSES, state_of(dict(walk(found.evidence))))
    return found


def is_known(project: Project) -> bool:
    """Whether the statuses are the remembered ones."""
    return known_statuses(project, dict) == STATUSES


def test_what_was_remembered_is_known(project: Project) -> None:
    """Only the same project reads the remembered statuses.

    They are in one file, whose name has the digest of the project's path.
    """
    assert is_known(project)
    (file,) = cache_folder().iterdir()
    assert file.name.removeprefix("statuses-").removesuffix(".json").isalnum()
    assert len(file.name) == len("statuses-.json") + 16
    assert recall("statuses", project.root, "")["sources"] == ["falsifiers/demo/sorting.py", "gone.py"]
    other = Project.find(write_project(project.root.parent / "other"))
    assert not is_known(other)


def record_of(project: Project, name: str) -> Path:
    """A file of the only bundle."""
    (found,) = project.evidence.rglob(name)
    return found


CHANGES: dict[str, Callable[[Project], object]] = {
    "settings": lambda project: (project.root / "pyproject.toml").write_text("[tool.harness]\n\n"),
    "contract": lambda project: write_contract(project.root, document(title="Another title")),
    "further contract": lambda project: write_contract(project.root, document(id="F-DEMO-B-002")),
    "source": lambda project: (project.root / SOURCE).write_text("x = 1\n"),
    "source that was missing": lambda project: (project.root / "gone.py").touch(),
    "time of a source": lambda project: os.utime(project.root / SOURCE, ns=(1, 1)),
    "record": lambda project: record_of(project, "record.json").write_text("{}"),
    "manifest": lambda project: record_of(project, "MANIFEST.sha256").unlink(),
    "further bundle": lambda project: sealed(project.root, run="2026-11-21T201503Z-cpu-3f2a9c"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(project: Project, change: str) -> None:
    CHANGES[change](project)
    assert not is_known(project)


def test_a_file_that_nothing_depends_on_may_change(project: Project) -> None:
    (project.root / "README.md").touch()
    (record_of(project, "record.json").parent / "artifacts").mkdir(exist_ok=True)
    (record_of(project, "record.json").parent / "artifacts" / "record.json").touch()
    record_of(project, "observation.json").write_text("{}")
    assert is_known(project)


def test_the_code_that_decides_is_a_dependency(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module that decides a status is a dependency, and so is their list."""
    for name in module._CODE:
        assert Path(module.__file__).with_name(name).is_file()
    monkeypatch.setattr(module, "_CODE", module._CODE[:-1])
    assert not is_known(project)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": 1}', '{"key": 1, "sources": 1, "statuses": {}}'])
def test_a_broken_file_is_worked_out_anew(project: Project, text: str) -> None:
    (file,) = cache_folder().iterdir()
    file.write_text(text)
    assert known_statuses(project, lambda: {"a": "b"}) == {"a": "b"}


def test_without_a_cache_nothing_is_remembered(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cache nothing is remembered, and there is no error."""
    (project.root / "file").touch()
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(project.root / "file"))
    remember(project, project.known(), [], STATUSES, state_of(dict(walk(project.evidence))))
    assert not is_known(project)
