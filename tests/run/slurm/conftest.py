"""A Slurm for the tests of this folder, and a project with defective subjects. Without Slurm they are skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.execution.projects import write_project
from tests.run.slurm.cluster import NoSlurm, cluster


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables by which clients find the cluster."""
    with ExitStack() as stack:
        try:
            # In /tmp, because the socket's path must be short.
            variables = stack.enter_context(cluster(tmp_path_factory.mktemp("slurm")))
        except NoSlurm as reason:
            pytest.skip(str(reason))
        yield variables


@pytest.fixture
def folder(tmp_path: Path, slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project. This process and its children know the cluster."""
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    write_project(tmp_path)
    return tmp_path
