"""Which profile, which device, how many trials side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.contract import Contract, Profile
from harness.machine import requirements, toolchain
from harness.machine.toolchain import Tool
from harness.plan import MOST_PARALLEL, Options, option_for_target, plan
from tests.contracts import contract_of, document
from tests.test_host import a_gpu, a_host

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
    """What was asked for is planned, or an obstacle says why not; a claim never moves to another device silently."""
    course = plan(contract(full, reduced), a_host(*[a_gpu()] * gpus), Options(**options))
    assert (course.profile.name, course.device["type"]) == expected[:2]
    assert expected[2] in course.obstacle
    assert bool(course.obstacle) is bool(expected[2])


@pytest.mark.parametrize("profile", ["full", "reduced"])
def test_a_profile_that_was_asked_for_is_not_said_to_be_all_the_machine_can_run(profile: str) -> None:
    assert plan(contract(ANY, ANY), a_host(), Options(profile=profile)).reason == "asked for"
    assert plan(contract(ANY, ANY), a_host(), Options()).reason == "this machine can run full"


def test_the_reason_names_what_is_lacking() -> None:
    """A reader of `reduced` learns why not full."""
    assert "not full: needs a CUDA GPU" in plan(contract(CUDA, ANY), a_host(), Options()).reason


@pytest.mark.parametrize(
    ("requires", "options", "parallel"),
    [
        (ANY, {}, MOST_PARALLEL),
        (ANY, {"mutants": False}, 1),
        (ANY, {"jobs": 7}, 7),
        ({**ANY, "memory_gib": 12}, {}, 2),
        ({**ANY, "memory_gib": 31}, {}, 1),
        ({**CUDA, "memory_gib": 60}, {}, 2),
        ({**CUDA, "memory_gib": 130}, {}, 1),
    ],
)
def test_side_by_side(requires: dict[str, Any], options: dict[str, Any], parallel: int) -> None:
    """As many trials as fit into the memory, the GPU's or the system's, and no fewer than one."""
    host = a_host(a_gpu(memory_bytes=140 << 30), memory_bytes=32 << 30, cpu_count=64)
    assert plan(contract(requires), host, Options(**options)).parallel == parallel


def test_a_claim_that_measures_time_runs_alone() -> None:
    """Whatever -j says."""
    assert plan(contract(ANY, exclusive=True), a_host(), Options(jobs=8)).parallel == 1


def test_overrides_reach_the_trial() -> None:
    """A parameter of the command line replaces the profile's, also where nothing will run."""
    assert plan(contract(ANY), a_host(), Options(parameters={"steps": 5})).parameters == {"steps": 5}
    assert plan(contract(CUDA), a_host(), Options(parameters={"steps": 5})).parameters == {"steps": 5}


def test_arguments_ask_for_the_same_again() -> None:
    """What the record's command says: nothing that is the default, and a text that looks like a number in quotes."""
    assert Options().arguments() == []
    parameters = {"model": "qwen2-tiny", "steps": 3, "revision": "7", "corpus": None}
    options = Options("full", "cuda:1", "toy:Sorter", parameters, mutants=False, jobs=2, seed=5)
    assert options.arguments() == [
        *("--profile", "full", "--device", "cuda:1", "--subject", "toy:Sorter"),
        *("-P", "model=qwen2-tiny", "-P", "steps=3", "-P", 'revision="7"', "-P", "corpus=null"),
        *("--no-mutants", "--seed", "5"),
    ]


def test_a_gpu_that_was_asked_for_needs_a_torch_that_was_built_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a profile that would as well run on the CPU."""
    tool = Tool("torch", "2.13.0+cpu", "/site-packages/torch", {"cuda": None, "hip": None})
    monkeypatch.setattr(toolchain, "torch", lambda: tool)
    monkeypatch.setattr(requirements, "_exists", lambda name: True)
    needing = contract({**CUDA, "modules": ["torch"]}, {**ANY, "modules": ["torch"]})
    course = plan(needing, a_host(a_gpu()), Options())
    assert (course.profile.name, course.device["type"]) == ("reduced", "cpu")
    assert "not full: needs a torch that was built for CUDA" in course.reason
    asked = plan(needing, a_host(a_gpu()), Options(profile="reduced", device="cuda:0"))
    assert "needs a torch that was built for CUDA" in asked.obstacle


@pytest.mark.parametrize(
    ("full", "target", "expected"),
    [
        (ANY, {"device": "NVIDIA GB10"}, "--device cuda:1"),
        (ANY, {"type": "cuda"}, "--device cuda:0"),
        (ANY, {"device": "NVIDIA B200"}, ""),
        (ANY, {"type": "cpu"}, ""),
        (ANY, {}, ""),
        (CUDA, {"device": "NVIDIA GB10"}, "--device cuda:1"),
        (CUDA, {"device": "GeForce"}, ""),
        ({**ANY, "memory_gib": 10_000}, {"device": "NVIDIA GB10"}, ""),
    ],
    ids=str,
)
def test_the_option_that_reaches_what_a_claim_speaks_of(
    full: dict[str, Any], target: dict[str, Any], expected: str
) -> None:
    """Only where the device that is taken without a wish is another one, and the claim's own is here and suffices."""
    gb10 = a_gpu(index=1, name="NVIDIA GB10", compute_capability="12.1")
    assert option_for_target(contract(full, ANY, target=target), a_host(a_gpu(), gb10)) == expected
