"""The claims on the code and files of a source, whose checkout must be on PYTHONPATH."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus

ROOT = Path(__file__).parents[2]


CLAIMS = sorted(path.parent.name for path in ROOT.glob("contracts/*/F-*-SOURCE-*/contract.json"))


def test_the_source_holds_and_every_mutant_dies() -> None:
    """Without the checkouts, nothing is measured, and the reasons name the modules that are missing."""
    command = [sys.executable, "-m", "harness", "run", *CLAIMS, "--scratch"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode == ExitStatus.NOT_MEASURED:
        assert "needs the Python module" in ended.stdout
        pytest.skip("not every source's checkout is on PYTHONPATH")
    assert ended.returncode == ExitStatus.PASS, ended.stdout + ended.stderr
