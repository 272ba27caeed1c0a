"""The submission of a claim to Slurm, and the command of its job."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.contract import Contract
from harness.running.request import RunRequest
from harness.tools.slurm.submission import HARNESS, Submission, obstacle
from tests.tools.slurm.test_job import Clients, followed

ANY = RunRequest()


def claim(contract: Contract, **requires: Any) -> Contract:
    """The claim with a full profile of two minutes with these requirements, and a reduced one of a minute."""
    profile = contract.profiles["reduced"]
    full = replace(profile, name="full", requires={"device": "cuda", **requires}, seconds=120.0)  # type: ignore[typeddict-item]
    reduced = replace(profile, name="reduced", requires={"device": "any"}, seconds=60.0)
    return replace(contract, profiles={"full": full, "reduced": reduced})


@pytest.mark.parametrize(
    ("request_", "profile"),
    [(ANY, "full"), (RunRequest(profile="full"), "full"), (RunRequest(profile="reduced"), "reduced")],
)
def test_the_profile_whose_resources_are_asked_for(contract: Contract, request_: RunRequest, profile: str) -> None:
    """The profile is the largest one, unless the command line names another. A claim can have only one."""
    assert Submission(Path(), Path(), request_).profile(claim(contract)).name == profile
    only = claim(contract).profiles["reduced"]
    assert Submission(Path(), Path(), request_).profile(replace(contract, profiles={"reduced": only})) == only


@pytest.mark.parametrize(
    ("request_", "minutes"),
    [
        (ANY, 10 + 2 * 3),
        (RunRequest(profile="reduced"), 10 + 3),
        (RunRequest(mutants=False), 10 + 2),
        (RunRequest(profile="reduced", mutants=False), 10 + 1),
    ],
)
def test_the_time_of_a_job(contract: Contract, request_: RunRequest, minutes: int) -> None:
    """The time is the sum of all trials, and ten minutes more."""
    submitted = claim(contract)
    mutants = tuple(replace(submitted.mutants[0], id=name) for name in ("a", "b"))
    assert Submission(Path(), Path(), request_).minutes(replace(submitted, mutants=mutants)) == minutes
    longer = replace(submitted.profiles["full"], seconds=120.1)
    assert Submission(Path(), Path(), ANY).minutes(replace(submitted, mutants=mutants, profiles={"full": longer})) == 17


@pytest.mark.parametrize(
    ("requires", "request_", "asked"),
    [
        ({}, ANY, ["--gres=gpu:1"]),
        ({"gpus": 2}, ANY, ["--gres=gpu:2"]),
        ({"compute_capability": "9.0"}, ANY, ["--gres=gpu:1", "--constraint=sm_90|sm_121"]),
        ({"device": "any", "compute_capability": "9.0"}, ANY, []),
        ({"device": "any", "gpus": 2}, ANY, ["--gres=gpu:2"]),
        ({"device": "any"}, RunRequest(device="cuda"), ["--gres=gpu:1"]),
        ({"device": "any"}, RunRequest(device="cuda:1"), ["--gres=gpu:1"]),
        ({"gpus": 2}, RunRequest(device="cpu"), []),
        ({"gpus": 2}, RunRequest(profile="reduced"), []),
        ({}, RunRequest(jobs=3), ["--gres=gpu:1", "--cpus-per-task=3"]),
    ],
)
def test_the_resources_of_a_job(
    contract: Contract, clients: Clients, requires: Mapping[str, Any], request_: RunRequest, asked: list[str]
) -> None:
    """The job gets GPUs if the profile needs them, the compute capability, and a processor for each trial at a time."""
    clients(sinfo="echo sm_90,ib; echo sm_121")
    submitted = replace(claim(contract, **requires), target={})
    assert Submission(Path(), Path(), request_).needs(submitted) == asked


@pytest.mark.parametrize(
    ("least", "target", "nodes"),
    [
        ("9.0", None, "sm_90|sm_121"),
        ("10.0", None, "sm_121"),
        ("13.0", None, "sm_130"),
        ("9.0", "12.1", "sm_121"),
        ("9.0", "8.0", "sm_90|sm_121"),
        (None, None, ""),
    ],
)
def test_the_features_of_the_nodes_for_a_claim(least: str | None, target: str | None, nodes: str) -> None:
    """The target's nodes are chosen if there are any, else all that suffice.

    If no node suffices, Slurm refuses the job.
    """
    submission = Submission(Path(), Path(), ANY)
    submission.__dict__["features"] = "sm_90,ib\nsm_121\n"
    assert submission._nodes(least, target) == nodes


def test_what_a_job_runs(contract: Contract, clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's options of srun come last. Paths are absolute, and the profile is the requested one."""
    monkeypatch.chdir(tmp_path)
    calls = clients()
    request = RunRequest(device="cuda", jobs=2, seed=7, executor_options=("--time=5", "--qos=high"), key=Path("ci.key"))
    followed(Submission(tmp_path, Path("kept"), request).submit(claim(contract)))
    (words,) = calls("srun")
    place = words.index(HARNESS[0])
    assert words[:place][-6:] == [
        f"--job-name={contract.id}", "--time=14", "--gres=gpu:1", "--cpus-per-task=2", "--time=5", "--qos=high",
    ]  # fmt: skip
    assert words[place:] == [
        *HARNESS, contract.id, "--profile", "full", "--device", "cuda", "--seed", "7", "--jobs", "2",
        "--evidence", f"{tmp_path}/kept", "--event-lines", "--key", f"{tmp_path}/ci.key",
    ]  # fmt: skip
    plain = Submission(tmp_path, tmp_path, RunRequest(profile="reduced")).options(claim(contract))
    assert plain == ["--profile", "reduced", "--evidence", str(tmp_path), "--event-lines"]


@pytest.mark.parametrize("missing", ["srun", "squeue", "scancel"])
def test_where_no_job_can_be_submitted(
    missing: str, clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job can be submitted without one of the clients, or inside a job."""
    clients()
    monkeypatch.setenv("PATH", str(tmp_path / "clients"))
    assert obstacle() == ""
    (tmp_path / "clients" / missing).unlink()
    assert shutil.which(missing) is None
    assert obstacle().startswith(f"{missing} is not on PATH")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert "job 7" in obstacle()
