"""The choice of profile and device."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from harness.contract import Contract, Profile
from harness.contract.other_subject import Subject
from harness.machine import installed, requirements
from harness.machine.installed import Tool
from harness.report.terminal.run_text import limit_text
from harness.running.events import ClaimPlanned
from harness.running.plan import device_of, make_plan, option_for_target
from harness.running.request import RunRequest
from tests.contracts import contract_of, document
from tests.machine.invented_hosts import a_gpu, a_host

ANY: dict[str, Any] = {"device": "any"}
CUDA: dict[str, Any] = {"device": "cuda"}


def contract(full: dict[str, Any], reduced: dict[str, Any] | None = None, **changes: Any) -> Contract:
    """The valid contract with these requirements."""
    profiles = {"full": Profile("full", full, {"steps": 3}, 60.0, 60.0)}
    if reduced is not None:
        profiles["reduced"] = Profile("reduced", reduced, {"steps": 3}, 60.0, 60.0)
    loaded = contract_of(document())
    return replace(loaded, profiles=profiles, mutants=loaded.mutants * 9, **changes)


@pytest.mark.parametrize(
    ("full", "reduced", "gpus", "options", "expected"),
    [
        (ANY, ANY, 0, {}, ("full", "cpu", "")),
        (CUDA, ANY, 1, {}, ("full", "cuda", "")),
        (CUDA, ANY, 0, {}, ("reduced", "cpu", "")),
        (CUDA, ANY, 1, {"device": "cpu"}, ("reduced", "cpu", "")),
        (CUDA, ANY, 1, {"profile": "reduced", "device": "cuda:0"}, ("reduced", "cuda", "")),
        (CUDA, ANY, 0, {"profile": "full"}, ("full", "cpu", "needs a CUDA GPU")),
        (ANY, ANY, 0, {"device": "cuda"}, ("reduced", "cpu", "leaves it no GPU")),
        (CUDA, ANY, 1, {"device": "cuda:7"}, ("reduced", "cpu", "leaves it no GPU")),
        (ANY, None, 0, {"profile": "reduced"}, ("full", "cpu", "no such profile")),
        ({**ANY, "memory_gib": 10_000}, ANY, 0, {}, ("reduced", "cpu", "")),
    ],
)
def test_choices(
    full: dict[str, Any],
    reduced: dict[str, Any] | None,
    gpus: int,
    options: dict[str, Any],
    expected: tuple[str, str, str],
) -> None:
    """The plan follows the request, or an obstacle says why it cannot.

    A claim never moves silently to another device.
    """
    plan = make_plan(contract(full, reduced), a_host(*[a_gpu()] * gpus), RunRequest(**options))
    assert (plan.profile.name, plan.device.type) == expected[:2]
    assert expected[2] in plan.obstacle
    assert bool(plan.obstacle) is bool(expected[2])


@pytest.mark.parametrize("profile", ["full", "reduced"])
def test_a_profile_that_was_asked_for_is_not_said_to_be_all_the_machine_can_run(profile: str) -> None:
    assert make_plan(contract(ANY, ANY), a_host(), RunRequest(profile=profile)).reason == "asked for"
    assert make_plan(contract(ANY, ANY), a_host(), RunRequest()).reason == "this machine can run full"


NO_GPU = "needs a CUDA GPU; no driver"


@pytest.mark.parametrize(
    ("full", "reduced", "gpus", "options", "expected"),
    [
        (CUDA, None, 0, {}, f"full: {NO_GPU}"),
        (CUDA, CUDA, 0, {}, f"full: {NO_GPU}; reduced: {NO_GPU}"),
        (
            *({**CUDA, "modules": ["there_is_none"]}, None, 0, {}),
            f"full: {NO_GPU}; needs the Python module there_is_none, which is not installed for this Python",
        ),
        (CUDA, ANY, 0, {"profile": "full"}, f"full: {NO_GPU}; --profile reduced would run here"),
        (
            *(CUDA, ANY, 0, {"profile": "full", "device": "cuda:0"}),
            f"full: {NO_GPU}; --profile reduced --device cpu would run here",
        ),
        (
            *(CUDA, ANY, 1, {"profile": "full", "device": "cpu"}),
            "full: --device cpu leaves it no GPU that it could use; --profile reduced would run here",
        ),
        (
            *(CUDA, ANY, 1, {"profile": "reduced", "device": "cuda:3"}),
            "reduced: --device cuda:3 leaves it no GPU that it could use; --profile full --device cuda:0 would run"
            " here",
        ),
        (
            *(CUDA, None, 1, {"device": "cpu"}),
            "full: --device cpu leaves it no GPU that it could use; --profile full --device cuda:0 would run here",
        ),
        (
            *(ANY, None, 0, {"device": "cuda"}),
            "full: --device cuda leaves it no GPU that it could use: no driver; --profile full --device cpu would run"
            " here",
        ),
        (
            *(ANY, None, 0, {"profile": "reduced", "device": "cuda:1"}),
            "reduced: the contract has no such profile; --profile full --device cpu would run here",
        ),
    ],
)
def test_an_obstacle_names_every_profile_and_what_would_run(
    full: dict[str, Any], reduced: dict[str, Any] | None, gpus: int, options: dict[str, Any], expected: str
) -> None:
    """The options can be appended to the given ones, because the last of two equal options counts."""
    claim, host = contract(full, reduced), a_host(*[a_gpu()] * gpus)
    plan = make_plan(claim, host, RunRequest(**options))
    assert plan.obstacle == plan.reason == expected
    assert plan.gpu is None
    assert list(plan.passed_over) == [name for name in ("full", "reduced") if f"{name}: " in expected]
    added = dict(re.findall(r"--(\w+) (\S+)", expected.rpartition("; ")[2]))
    assert bool(make_plan(claim, host, RunRequest(**{**options, **added})).obstacle) is not bool(added)


def test_the_reason_names_what_is_lacking() -> None:
    """The reader learns why the run is not full."""
    assert "not full: needs a CUDA GPU" in make_plan(contract(CUDA, ANY), a_host(), RunRequest()).reason


def test_the_device_of_an_observation() -> None:
    """A CPU has architecture and system memory. A GPU has the driver's values."""
    assert device_of(None, a_host()).to_json() == {
        "type": "cpu",
        "name": "x86_64",
        "memory_bytes": 16 << 30,
        "memory_source": "MemTotal",
    }
    assert device_of(a_gpu(index=1), a_host()).to_json() == {
        "type": "cuda",
        "name": "NVIDIA GeForce RTX 4060",
        "compute_capability": "8.9",
        "memory_bytes": 8 << 30,
        "memory_source": "NVML",
        "unified": False,
        "uuid": "GPU-a",
    }


@pytest.mark.parametrize(
    ("requires", "device", "expected"),
    [
        (CUDA, "auto", 0),
        (CUDA, "cuda:0", 0),
        (CUDA, "cuda:1", 1),
        (ANY, "cuda", 0),
        ({**CUDA, "memory_gib": 20}, "cuda", 1),
        (ANY, "cuda:1", 1),
        (ANY, "auto", None),
        (ANY, "cpu", None),
        ({**CUDA, "memory_gib": 20}, "auto", 1),
    ],
)
def test_which_gpu(requires: dict[str, Any], device: str, expected: int | None) -> None:
    """The GPU is the first sufficient one, or the requested one."""
    host = a_host(a_gpu(), a_gpu(index=1, memory_bytes=24 << 30))
    plan = make_plan(contract(requires), host, RunRequest(device=device))
    assert (plan.obstacle, plan.gpu.index if plan.gpu else None) == ("", expected)
    assert plan.device == device_of(plan.gpu, host)


def test_a_run_that_is_over_needs_no_gpu() -> None:
    """Only the modules that read the run are needed. An external trainer needs the contract's requirements."""
    recorded, command = Subject("a.external:Recorded", is_over=True), Subject("a.external:Command")
    for host in (a_host(), a_host(a_gpu())):
        plan = make_plan(contract(CUDA), host, RunRequest(subject=recorded, profile="full"))
        assert (plan.obstacle, plan.gpu) == ("", None)
        assert plan.reason == "a run that is over needs no machine"
    unknown = make_plan(contract({**ANY, "memory_gib": 100}), a_host(memory_bytes=None), RunRequest(subject=recorded))
    assert unknown.obstacle == ""
    needing = contract({**CUDA, "modules": ["there_is_none"]})
    assert "there_is_none" in make_plan(needing, a_host(), RunRequest(subject=recorded)).obstacle
    assert make_plan(contract(CUDA), a_host(), RunRequest(subject=command)).obstacle == f"full: {NO_GPU}"
    assert make_plan(contract(CUDA), a_host(a_gpu()), RunRequest(subject=command)).gpu is not None


def test_overrides_reach_the_trial() -> None:
    """A parameter of the command line replaces the profile's, also if nothing can run."""
    assert make_plan(contract(ANY), a_host(), RunRequest(parameters={"steps": 5})).parameters == {"steps": 5}
    assert make_plan(contract(CUDA), a_host(), RunRequest(parameters={"steps": 5})).parameters == {"steps": 5}


@pytest.mark.parametrize(("gpus", "claimed", "expected"), [(1, False, 17.0), (1, True, 1.0), (0, False, 1.0)])
def test_a_slower_gpu_gets_more_time(
    monkeypatch: pytest.MonkeyPatch, gpus: int, claimed: bool, expected: float
) -> None:
    """Subject, mutants and the line of the plan have the same limit. One that is claimed stays, and so does a CPU's."""
    monkeypatch.setattr("harness.running.plan._paces", lambda: [lambda name: 17.0])
    declared = contract(ANY if not gpus else CUDA)
    declared = replace(declared, profiles={"full": replace(declared.profiles["full"], limit_is_claimed=claimed)})
    plan = make_plan(declared, a_host(*[a_gpu()] * gpus), RunRequest())
    event = ClaimPlanned.of(plan)
    limits = [plan.seconds, plan.trial().seconds, plan.mutant_trial(plan.mutants[0][0]).seconds, event.limit_seconds]
    assert limits == [60.0 * expected] * 4
    assert (event.pace, "slower than an H200" in limit_text(event)) == (expected, expected > 1)


def test_arguments_ask_for_the_same_again() -> None:
    """The record's command leaves out defaults, and quotes a text that looks like a number."""
    assert RunRequest().arguments() == []
    assert RunRequest(isolate=True).arguments() == ["--isolate"]
    parameters = {"model": "qwen2-tiny", "steps": 3, "revision": "7", "corpus": None}
    sorter = Subject.at("toy:Sorter")
    options = RunRequest((), "full", "cuda:1", sorter, parameters=parameters, mutants=False, jobs=2, seed=5)
    assert options.arguments() == [
        *("--profile", "full", "--device", "cuda:1", "--subject", "toy:Sorter"),
        *("-P", "model=qwen2-tiny", "-P", "steps=3", "-P", 'revision="7"', "-P", "corpus=null"),
        *("--no-mutants", "--seed", "5"),
    ]


def test_arguments_name_another_s_trainer_and_its_parameters() -> None:
    """The trainer's file is the name of the subject. The trainer's own parameter replaces the claim's."""
    own = {"trainer": "apr.toml", "steps": 7, "student": "s.apr"}
    options = RunRequest(parameters={"steps": 3, "rate": 0.5}, subject=Subject("a:Command", "command:apr.toml", own))
    words = ["--subject", "command:apr.toml", "-P", "steps=7", "-P", "rate=0.5", "-P", "student=s.apr"]
    assert options.arguments() == words


def test_a_gpu_that_was_asked_for_needs_a_torch_that_was_built_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for a profile that could also run on the CPU."""
    tool = Tool("torch", "2.13.0+cpu", "/site-packages/torch", {"cuda": None, "hip": None})
    monkeypatch.setattr(installed, "torch", lambda: tool)
    monkeypatch.setattr(requirements, "_exists", lambda name: True)
    needing = contract({**CUDA, "modules": ["torch"]}, {**ANY, "modules": ["torch"]})
    plan = make_plan(needing, a_host(a_gpu()), RunRequest())
    assert (plan.profile.name, plan.device.type) == ("reduced", "cpu")
    assert "not full: needs a torch that was built for CUDA" in plan.reason
    asked = make_plan(needing, a_host(a_gpu()), RunRequest(profile="reduced", device="cuda:0"))
    assert "needs a torch that was built for CUDA" in asked.obstacle


@pytest.mark.parametrize(
    ("full", "target", "expected"),
    [
        (ANY, {"device": "NVIDIA GB10"}, "--device cuda:1"),
        (ANY, {"type": "cuda"}, "--device cuda:0"),
        (ANY, {"device": "NVIDIA B200"}, ""),
        (ANY, {"type": "cpu"}, ""),
        (ANY, {}, ""),
        (CUDA, {"device": "NVIDIA GB10"}, ""),
        (CUDA, {"device": "GeForce"}, ""),
        ({**ANY, "memory_gib": 10_000}, {"device": "NVIDIA GB10"}, ""),
    ],
    ids=str,
)
def test_the_option_that_reaches_what_a_claim_speaks_of(
    full: dict[str, Any], target: dict[str, Any], expected: str
) -> None:
    """The option is named if the claim's own device is present and sufficient, but not the default."""
    gb10 = a_gpu(index=1, name="NVIDIA GB10", compute_capability="12.1")
    assert option_for_target(contract(full, ANY, target=target), a_host(a_gpu(), gb10)) == expected


@pytest.mark.parametrize(
    ("requires", "target", "expected"),
    [
        (CUDA, {}, [0, 1, 2]),
        (CUDA, {"compute_capability": "12.1"}, [1, 2]),
        (CUDA, {"compute_capability": "9.0"}, [0, 1, 2]),
        ({**CUDA, "gpus": 2}, {"compute_capability": "12.1"}, [1, 2]),
        ({**CUDA, "gpus": 3}, {"compute_capability": "12.1"}, [0, 1, 2]),
    ],
)
def test_a_claim_uses_the_gpus_that_it_speaks_of(
    requires: dict[str, Any], target: dict[str, Any], expected: list[int]
) -> None:
    """The claim uses its own kind of GPUs if there are enough, because the evidence on another kind is worth less."""
    gb10s = [a_gpu(index=index, uuid=f"GPU-{index}", name="NVIDIA GB10", compute_capability="12.1") for index in (1, 2)]
    plan = make_plan(contract(requires, target=target), a_host(a_gpu(), *gb10s), RunRequest())
    assert [gpu.index for gpu in plan.gpus] == expected
    assert plan.gpu is plan.gpus[0]
    taken = plan.gpus[: requires.get("gpus", 1)]
    assert (plan.gpu, *plan.trial().others) == taken
    assert list(plan.devices) == sorted(gpu.key for gpu in taken)
