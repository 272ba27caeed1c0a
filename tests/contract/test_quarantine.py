"""A quarantine excuses a NOT_MEASURED for a limited time, and never a FAIL."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from harness.base.vocabulary import Verdict
from harness.contract.project import Project, ProjectError
from harness.contract.quarantine import Quarantine

UNTIL = date(2026, 12, 31)
ENTRY = 'claim = "F-A-001"\ndevice = "H200"\nreason = "no room"\nuntil = 2026-12-31\n'


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize(("today", "valid"), [(UNTIL, True), (date(2027, 1, 1), False)])
def test_only_a_verdict_that_says_nothing_is_excused(verdict: Verdict, today: date, valid: bool) -> None:
    quarantine = Quarantine("F-A-001", "H200", "no room", UNTIL)
    assert quarantine.excuses(verdict, today) is (valid and verdict is Verdict.NOT_MEASURED)
    assert ("is over" in quarantine.text(today)) is not valid


def test_it_is_about_one_claim_on_one_class_of_device(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.harness]\n[[tool.harness.quarantine]]\n{ENTRY}")
    (one,) = Project.find(tmp_path).quarantine
    assert one == Quarantine("F-A-001", "H200", "no room", UNTIL)
    assert one.covers("F-A-001", "NVIDIA H200 (9.0)")
    assert not one.covers("F-A-001", "CPU x86_64")
    assert not one.covers("F-A-002", "NVIDIA H200 (9.0)")


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY.replace('"no room"', '""'),
        ENTRY.replace("2026-12-31", '"2026-12-31"'),
        ENTRY.replace("2026-12-31", "2026-12-31T00:00:00"),
        ENTRY.replace('device = "H200"\n', ""),
        f"{ENTRY}verdict = 1\n",
    ],
)
def test_an_entry_that_says_too_little_is_refused(tmp_path: Path, entry: str) -> None:
    """A quarantine must have an end and a reason, because it would stay for ever otherwise."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.harness]\n[[tool.harness.quarantine]]\n{entry}")
    with pytest.raises(ProjectError, match="quarantine"):
        Project.find(tmp_path)
