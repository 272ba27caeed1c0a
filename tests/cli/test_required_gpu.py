"""If a machine should have a GPU and its driver does not work, the run fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from harness.base.vocabulary import ExitStatus
from harness.cli.run_options import RunOptions, refuse_without_gpu
from harness.contract.project import Project
from harness.machine.host import promised_gpu
from harness.running.plan import make_plan
from harness.running.request import RunRequest
from harness.running.stale_selection import due, never_here
from tests.cli.harness_command import harness
from tests.contracts import document, write_project
from tests.machine.invented_hosts import a_gpu, a_host

ROOT = Path(__file__).parents[2]
GIVEN = RunOptions()
NO_GPU = a_host(gpu_reason="the driver answers: NVML_ERROR_DRIVER_NOT_LOADED")


@pytest.fixture(autouse=True)
def outside_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("changes", [{}, {"profile": "full"}, {"device": "cuda:0"}])
def test_a_required_gpu_that_does_not_work_refuses_the_run(changes: Any) -> None:
    """The message has the driver's reason."""
    refuse_without_gpu(replace(GIVEN, **changes), NO_GPU)
    with pytest.raises(click.ClickException, match="DRIVER_NOT_LOADED"):
        refuse_without_gpu(replace(GIVEN, require_gpu=True, **changes), NO_GPU)


@pytest.mark.parametrize(
    ("variables", "promised"),
    [
        ({}, False),
        ({"SLURM_JOB_GPUS": "0"}, True),
        ({"SLURM_STEP_GPUS": "3"}, True),
        ({"SLURM_GPUS_ON_NODE": "2"}, True),
        ({"SLURM_GPUS_ON_NODE": "0"}, False),
        ({"SLURM_JOB_GPUS": ""}, False),
    ],
    ids=str,
)
def test_a_gpu_of_slurm_that_does_not_work_refuses_the_run(
    variables: dict[str, str], promised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs are not refused: one that asks for no GPU, and a job of --executor slurm, which seals the reason."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert bool(promised_gpu()) == promised
    for changes in ({"device": "cpu"}, {"profile": "reduced"}, {"event_lines": True}):
        refuse_without_gpu(replace(GIVEN, **changes), NO_GPU)
    if promised:
        with pytest.raises(click.ClickException, match=r"SLURM_.*DRIVER_NOT_LOADED"):
            refuse_without_gpu(GIVEN, NO_GPU)
    else:
        refuse_without_gpu(GIVEN, NO_GPU)


def test_a_gpu_that_works_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_GPUS", "0")
    refuse_without_gpu(replace(GIVEN, require_gpu=True), a_host(a_gpu()))


def test_the_command_refuses_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status is 2, and there is no bundle."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    root = write_project(tmp_path)
    done = harness(root, "run", "--all", "--require-gpu")
    assert done.returncode == ExitStatus.REFUSED
    assert "no GPU works" in done.stderr
    assert not list(root.glob("evidence/*/*"))
    assert harness(root, "run", "--all", "--require-gpu", "--device", "cpu").returncode == ExitStatus.REFUSED


@pytest.mark.parametrize(("profile", "due_here"), [("auto", False), ("full", True)])
def test_a_profile_that_is_asked_for_by_name_is_due_although_it_cannot_run(
    tmp_path: Path, profile: str, due_here: bool
) -> None:
    """`run --stale --profile full` on a runner without a driver is NOT_MEASURED, not "nothing is stale"."""
    assert found(tmp_path, profile, {"device": "cuda"}, "full") == due_here


def test_a_claim_without_the_profile_is_not_for_this_machine(tmp_path: Path) -> None:
    """A claim that has only a reduced profile is not due in full."""
    assert not found(tmp_path, "full", {"device": "any"}, "reduced")


def test_all_claims_in_full_on_a_machine_that_can_never_run_one(tmp_path: Path) -> None:
    """The claim is named and left out, so that the run does not end red. Named by its id, it is NOT_MEASURED."""
    profile = document()["profiles"]["full"]
    huge = document(
        id="F-DEMO-HUGE-001", profiles={"full": {**profile, "requires": {"device": "any", "memory_gib": 1e6}}}
    )
    root = write_project(tmp_path, document(), huge)
    done = harness(root, "run", "--all", "--profile", "full", "--junit", "junit.xml")
    assert done.returncode == ExitStatus.PASS, done.stdout + done.stderr
    assert "not for this machine: F-DEMO-HUGE-001: full: needs" in done.stdout
    assert "2 claims declared, 1 evaluated: 1 PASS" in done.stdout
    assert 'name="F-DEMO-HUGE-001"' in (root / "junit.xml").read_text()
    assert harness(root, "run", "F-DEMO-HUGE-001", "--profile", "full").returncode == ExitStatus.NOT_MEASURED


def test_a_gb10_is_not_asked_for_what_only_two_gpus_can_run() -> None:
    """In full, LOOKUP and GLOBALSUM are left out there; without a named profile, they run in the reduced one."""
    contracts, _ = Project.find(ROOT).load_all()
    gb10 = a_host(replace(a_gpu(), name="NVIDIA GB10", compute_capability="12.1", memory_bytes=121 << 30, unified=True))
    two = {"F-DYNEMB-LOOKUP-001", "F-PD-GLOBALSUM-001"}
    left_out = never_here(gb10, RunRequest(contracts=contracts, profile="full")).elsewhere
    assert {contract.id for contract, _ in left_out} == two
    assert never_here(gb10, RunRequest(contracts=contracts)).elsewhere == ()
    plans = [make_plan(contract, gb10, RunRequest()) for contract in contracts if contract.id in two]
    assert [(plan.profile.name, plan.obstacle) for plan in plans] == [("reduced", "")] * 2


def found(folder: Path, profile: str, requires: dict[str, str], only: str) -> bool:
    """Whether a claim with this profile alone is due on a machine without a GPU."""
    profiles = {only: {**document()["profiles"][only], "requires": requires}}
    target = {"type": "cpu" if requires["device"] == "any" else "cuda"}
    root = write_project(folder, document(profiles=profiles, target=target))
    project = Project.find(root)
    contracts, refused = project.load_all()
    assert not refused
    selection = due(project, NO_GPU, RunRequest(contracts=contracts, profile=profile))
    assert len(selection.due) + len(selection.elsewhere) == 1
    return bool(selection.due)
