"""The times of earlier trials are remembered. A file that cannot be read counts as none."""

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
def plan(project: Project) -> Plan:
    """The plan of a claim."""
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
    assert [path.name for path in tmp_path.glob("durations*")] == ["durations.json"]


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


@pytest.mark.parametrize("content", ["", "[1]", '"long"', "-1", "true", "{"])
def test_a_file_of_no_use(tmp_path: Path, plan: Plan, content: str) -> None:
    """The order of the run is then a guess."""
    durations = Durations(tmp_path)
    durations.add(plan, {"subject": 2.5})
    durations.save()
    file = tmp_path / "durations.json"
    file.write_text(file.read_text().replace("2.5", content) if content[:1] in '"-t' else content)
    assert Durations(tmp_path).expected(plan, "subject") == plan.profile.seconds


def test_without_a_folder(tmp_path: Path, plan: Plan) -> None:
    """Without a folder, times are not remembered, and there is no error."""
    for cache in (None, tmp_path / "missing"):
        durations = Durations(cache)
        durations.add(plan, {"subject": 1.0})
        durations.save()
        assert Durations(cache).expected(plan, "subject") == plan.profile.seconds
