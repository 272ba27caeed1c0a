"""`harness falsify-tests`: its refusals, and its list after a FAIL."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from harness.tools.suite.command import _entries, command


def test_a_share_of_survivors_needs_mutants() -> None:
    """--most-survivors without --mutate is refused."""
    assert CliRunner().invoke(command, ["tests", "--most-survivors", "0.2"]).exit_code == 2


def test_each_entry_of_what_refutes_a_suite_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to twenty entries of a list are shown. Numbers and empty lists are not."""
    found = {"checks": 5, "skipped": [], "deaf": ["one"], "missing": [f"cell {number}" for number in range(23)]}
    observation = SimpleNamespace(measurements=found)
    monkeypatch.setattr("harness.tools.suite.command.Bundle", lambda path: SimpleNamespace(observation=observation))
    lines = [*_entries(Path("bundle"))]
    assert lines[:3] == ["deaf:", "  one", "missing:"]
    assert lines[3:23] == [f"  cell {number}" for number in range(20)]
    assert lines[23:] == ["  and 3 more, in bundle/observation.json"]
