"""The misbehaving project, an executor for it that leaves no process, and a folder for leases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.contract.project import Project
from harness.execution.local_executor import LocalExecutor
from tests.execution.projects import write_project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with the misbehaving subjects."""
    return write_project(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def executor(project: Project, tmp_path: Path) -> Iterator[LocalExecutor]:
    """A running executor. When it ends, no process below it may be alive."""
    contract = project.contract("F-TOY-SORT-001")
    others = set(psutil.Process().children(recursive=True))  # such as the browser that other tests share
    with LocalExecutor(project, contract, tmp_path / "cache") as executor:
        yield executor
        folder = executor._server.folder
    assert not folder.exists()
    left = set(psutil.Process().children(recursive=True)) - others
    assert [child for child in left if child.is_running()] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the leases."""
    return tmp_path / "leases"
