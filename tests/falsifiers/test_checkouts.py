"""The claims on the code and files of a source, whose checkout must be on PYTHONPATH."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("claim", ["F-PD-SOURCE-FILES-001", "F-HSTU-SOURCE-001"])
def test_the_source_holds_and_every_mutant_dies(claim: str) -> None:
    """Without the checkout, nothing is measured, and the reason names the module that is missing."""
    command = [sys.executable, "-m", "harness", "run", claim, "--scratch"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode == ExitStatus.NOT_MEASURED:
        assert "needs the Python module" in ended.stdout
        pytest.skip("the source's checkout is not on PYTHONPATH")
    assert ended.returncode == ExitStatus.PASS, ended.stdout + ended.stderr
