"""`harness runs` in a project without detached runs. tests/run/slurm/ has those with some."""

from __future__ import annotations

from pathlib import Path

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness


def test_it_says_that_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\n")
    done = harness(tmp_path, "runs")
    assert (done.returncode, len(done.stdout.splitlines())) == (ExitStatus.PASS, 1)
    assert str(tmp_path / "evidence") in done.stdout
