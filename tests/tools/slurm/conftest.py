"""A Slurm for the tests of this folder, and a project with defective subjects. Without Slurm the tests are skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
    """The project, with the cluster's variables in this process and its children."""
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    write_project(tmp_path)
    return tmp_path


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[str], list[list[str]]]]:
    """Return a function that puts shell scripts in the place of Slurm's clients, by name.

    It returns one that tells the arguments of each call of a client so far.
    """
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    place = tmp_path / "clients"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")

    def put(**scripts: str) -> Callable[[str], list[list[str]]]:
        for name in ("srun", "sbatch", "squeue", "sacct", "scancel", "sinfo"):
            log = f'printf "%s\\n" "$@" "" >> {place}/{name}.calls'
            (place / name).write_text(f"#!/bin/sh\n{log}\n{scripts.get(name, 'true')}\n")
            (place / name).chmod(0o755)

        def calls(name: str) -> list[list[str]]:
            log = place / f"{name}.calls"
            return [one.splitlines() for one in log.read_text().split("\n\n")[:-1]] if log.exists() else []

        return calls

    return put
