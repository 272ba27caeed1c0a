"""Scripts in the place of Slurm's clients."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


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
            return [call.splitlines() for call in log.read_text().split("\n\n")[:-1]] if log.exists() else []

        return calls

    return put
