"""The memory of a profile's step is predicted before a trial gets the GPU, and recorded beside the measured peak."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.execution.executor import TrialRequest
from harness.machine.host import Gpu
from harness.machine.requirements import Requirements
from harness.running.plan import Plan, make_plan
from harness.running.request import RunRequest
from harness.tools.probe import memory_check
from harness.tools.probe.memory_check import foreseen, obstacle
from tests.run.pretending import Bench, honest, only

GPU = Gpu(0, "GPU-0", "NVIDIA H200", "9.0", 140 << 30, "NVML", False)
SAID: JsonObject = {"step": "steps:huge", "capacity": 140 << 30, "allocated": 200 << 30, "reserved": 200 << 30}


def on_gpu(whole: Bench) -> Contract:
    whole.engine._host = replace(whole.engine._host, gpus=(GPU,))
    profile = replace(whole.contract.profiles["reduced"], requires={"device": "cuda"}, step="steps:huge")
    return replace(whole.contract, profiles={"reduced": profile})


def planned(whole: Bench, **changes: Any) -> Plan:
    """The claim on the GPU, with changes of its profile."""
    plan = make_plan(on_gpu(whole), whole.engine._host, RunRequest(profile="reduced"))
    return replace(plan, profile=replace(plan.profile, **changes))


@pytest.mark.parametrize(
    ("fit", "verdict", "trials", "measured"),
    [
        ("does not fit", Verdict.NOT_MEASURED, 0, None),
        ("unknown", Verdict.PASS, 2, 1),
        ("fits", Verdict.PASS, 2, 1),
    ],
)
def test_what_does_not_fit_does_not_begin(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch,
    fit: str, verdict: Verdict, trials: int, measured: int | None,
) -> None:  # fmt: skip
    ran = []

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        ran.append(request.subject)
        return honest(request)

    monkeypatch.setattr(memory_check, "foreseen", lambda *_: {**SAID, "fit": fit})
    whole = bench(behave)
    record = only(whole.run(on_gpu(whole), profile="reduced"))
    assert (record.verdict, len(ran)) == (verdict, trials)
    assert record.predicted == {**SAID, "fit": fit, "measured": measured}
    if not trials:
        assert whole.sealed[0].subject.observation.ending.reason == obstacle(record.predicted)


@pytest.mark.parametrize(
    ("declared", "predicted", "together"),
    [({}, 100, 1), ({}, 40, 2), ({"memory_gib": 40}, 100, 2), ({"memory_gib": 100}, 40, 1)],
)
def test_trials_share_a_gpu_as_far_as_the_prediction_allows(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch,
    declared: Requirements, predicted: int, together: int,
) -> None:  # fmt: skip
    """If the profile declares its memory, the prediction does not count."""
    meeting, turn, running, most = threading.Barrier(together), threading.Lock(), 0, 0

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        nonlocal running, most
        with turn:
            running, most = running + 1, max(most, running + 1)
        if request.subject.endswith(":Sorter"):
            meeting.wait(60)
            time.sleep(0.1 if together == 1 else 0.0)  # in which another trial could begin
        with turn:
            running -= 1
        return honest(request)

    monkeypatch.setattr(memory_check, "foreseen", lambda *_: {**SAID, "fit": "fits", "reserved": predicted << 30})
    whole = bench(behave)
    claim = on_gpu(whole)
    profile = claim.profiles["reduced"]
    claim = replace(claim, profiles={"reduced": replace(profile, requires={**profile.requires, **declared})})
    finished = whole.run(claim, replace(claim, id="F-DEMO-OTHER-001"), profile="reduced", jobs=2)
    assert [record.verdict for record in finished.records] == [Verdict.PASS] * 2
    assert most == together


def test_a_claim_without_a_step_is_not_predicted(bench: Callable[..., Bench]) -> None:
    whole = bench(honest)
    assert only(whole.run(profile="reduced")).predicted == {}


def test_the_step_gets_the_parameters_of_the_profile(bench: Callable[..., Bench], tmp_path: Any) -> None:
    """What its module prints is no part of the prediction."""
    plan = planned(bench(honest), parameters={"steps": 3})
    (tmp_path / "steps.py").write_text(
        "import torch\n"
        "print('imported')\n"
        "def huge(steps):\n"
        "    weight = torch.empty(steps, 1 << 36, dtype=torch.uint8, device='cuda')\n"
        "    return lambda: None\n"
    )
    found = foreseen(plan, tmp_path, lambda: False)
    assert found == {
        "step": "steps:huge", "fit": "does not fit", "capacity": 140 << 30, "allocated": 3 << 36, "reserved": 3 << 36
    }  # fmt: skip


def test_a_prediction_ends_at_the_time_limit_of_the_profile(bench: Callable[..., Bench], tmp_path: Any) -> None:
    """So do the processes that the step started."""
    plan = planned(bench(honest), parameters={}, seconds=2.0)
    (tmp_path / "steps.py").write_text(
        "import subprocess, time\n"
        "def huge():\n"
        f"    subprocess.Popen(['sh', '-c', 'sleep 3; touch {tmp_path}/lives'])\n"
        "    time.sleep(3600)\n"
    )
    began = time.monotonic()
    assert foreseen(plan, tmp_path, lambda: False) == {"step": "steps:huge", "reason": "did not end within 2 s"}
    assert time.monotonic() - began < 20
    time.sleep(2)
    assert not (tmp_path / "lives").exists()
