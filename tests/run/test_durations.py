"""The times of earlier trials are remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.base.device import Device
from harness.contract.project import Project
from harness.machine.host import probe
from harness.running.durations import Durations
from harness.running.plan import Plan, make_plan
from harness.running.request import RunRequest


@pytest.fixture
def plan(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The plan of a claim, with a cache folder of its own."""
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    return make_plan(project.contract("F-DEMO-SORT-001"), probe(project.root), RunRequest())


def test_the_last_run_tells(tmp_path: Path, plan: Plan) -> None:
    """The last run's time counts.

    A trial that never ran counts as long as its limit. Each run keeps the times of others.
    """
    first, second = Durations(tmp_path), Durations(tmp_path)
    for durations, seconds in ((first, {"subject": 2.5, "a": 1.0}), (second, {"a": 3.0})):
        durations.add(plan, seconds)
        durations.save()
    again = Durations(tmp_path)
    assert [again.expected(plan, trial) for trial in ("subject", "a", "b")] == [2.5, 3.0, plan.profile.seconds]


def test_other_circumstances_tell_nothing(tmp_path: Path, plan: Plan) -> None:
    """The times of another claim, profile or device do not count."""
    durations = Durations(tmp_path)
    durations.add(plan, {"subject": 2.5})
    durations.save()
    others = (
        replace(plan, contract=replace(plan.contract, id="F-OTHER-001")),
        replace(plan, profile=replace(plan.profile, name="another")),
        replace(plan, device=Device("cuda", "NVIDIA H200", "9.0")),
    )
    assert {Durations(tmp_path).expected(other, "subject") for other in others} == {plan.profile.seconds}


def test_what_cannot_be_kept_is_a_guess(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: Plan) -> None:
    """Without a folder, times are not remembered, and there is no error."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "file"))
    for root in (None, tmp_path):
        durations = Durations(root)
        durations.add(plan, {"subject": 1.0})
        durations.save()
        assert Durations(root).expected(plan, "subject") == plan.profile.seconds
