"""A test that hangs ends the suite with a traceback, and the suite fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_every_test_has_a_limit(pytestconfig: pytest.Config) -> None:
    """The limit is longer than any test takes, and shorter than the whole suite."""
    assert 120 < float(pytestconfig.getini("faulthandler_timeout")) < 600


def test_a_hang_fails_the_suite(tmp_path: Path) -> None:
    """The limit is half a second here. The traceback names the line that hangs."""
    (tmp_path / "test_hangs.py").write_text("import time\n\n\ndef test_that_hangs():\n    time.sleep(600)\n")
    options = ["-c", str(ROOT / "pyproject.toml"), "-o", "faulthandler_timeout=0.5", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert 'test_hangs.py", line 5 in test_that_hangs' in done.stderr
