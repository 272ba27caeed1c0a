"""Claims that run together: their order, their devices and their verdicts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.execution.executor import TrialRequest
from harness.execution.lease import lease
from harness.machine.host import Gpu
from harness.running import events
from harness.running.durations import Durations
from harness.running.plan import make_plan
from harness.running.request import RunRequest
from tests.contracts import timed
from tests.run.pretending import BROKEN, Bench, honest


@pytest.mark.parametrize(("fail_fast", "ran"), [(True, 1), (False, 2)])
def test_a_run_ends_with_the_first_failure_if_asked(bench: Callable[..., Bench], fail_fast: bool, ran: int) -> None:
    """The claims that have not begun do not run, and the run is not interrupted. One trial runs at a time."""
    whole = bench(lambda request: BROKEN)
    other = replace(whole.contract, id="F-DEMO-OTHER-001")
    finished = whole.run(whole.contract, other, fail_fast=fail_fast, jobs=1)
    assert (len(finished.records), finished.declared, finished.interrupted) == (ran, 2, False)


def test_the_order_of_trials(bench: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims that measure time come first, then those that took longest last time.

    The mutants come before the next claim.
    """
    ran, threads = list[str](), set[int]()

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        threads.add(request.threads)
        ran.append(f"{request.contract.id} {request.subject.rpartition(':')[2]}")
        return honest(request)

    whole = bench(behave)
    (mutant,) = whole.contract.mutants
    pair = (mutant, replace(mutant, id="long", subject="falsifiers.demo.sorting:Long"))
    claims = [replace(whole.contract, id=f"F-DEMO-{name}-001", mutants=pair) for name in ("SHORT", "LONG", "TIMED")]
    claims[2] = timed(claims[2])
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path))
    durations = Durations(tmp_path)
    for claim, seconds in zip(claims, (1.0, 5.0, 0.1), strict=True):
        plan = make_plan(claim, whole.engine._host, RunRequest())
        durations.add(plan, {"subject": seconds, mutant.id: seconds, "long": 2 * seconds})
    durations.save()
    whole.engine._durations = Durations(tmp_path)
    whole.run(*claims, jobs=1)
    trials = ("Sorter", "Long", "Forgetful")
    assert ran == [f"F-DEMO-{name}-001 {trial}" for name in ("TIMED", "LONG", "SHORT") for trial in trials]
    assert threads == {whole.engine._host.cpu_count}
    again = Durations(tmp_path)
    assert {again.expected(plan, name) for name in ("subject", mutant.id, "long")} == {0.0}


def test_a_claim_that_waits_for_a_device_holds_up_no_other(bench: Callable[..., Bench], tmp_path: Path) -> None:
    """A claim on a GPU that another process holds gives back its slot. What it waited is not its time.

    No second claim waits for that GPU meanwhile.
    """
    whole = bench(honest)
    gpu = Gpu(0, "GPU-0", "NVIDIA Test", "9.0", 1 << 40, "NVML", False)
    whole.engine._host = replace(whole.engine._host, gpus=(gpu,))
    taken, waiting, done, others = threading.Event(), threading.Event(), threading.Event(), list[str]()

    def hold() -> None:
        with lease(gpu, mode="exclusive", holder="F-OTHER-001", wait_seconds=0):
            taken.set()
            done.wait(60)

    def listen(event: events.Event) -> None:
        if isinstance(event, events.ClaimWaiting):
            waiting.set()
            assert (event.id, event.trial, event.device) == ("F-DEMO-GPU-001", events.SUBJECT, gpu.name)
        if isinstance(event, events.ClaimFinished):
            others.append(event.record.id)
            done.set()

    (profile,) = (whole.contract.profiles[name] for name in ("reduced",))
    on_gpu = replace(profile, requires={"device": "cuda"})
    claim = replace(whole.contract, id="F-DEMO-GPU-001", profiles={"reduced": on_gpu})
    whole.engine._emit = listen
    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(60)
    finished = whole.run(claim, replace(claim, id="F-DEMO-GPU-002"), whole.contract, profile="reduced", jobs=1)
    holder.join()
    assert waiting.is_set()
    assert others == ["F-DEMO-SORT-001", "F-DEMO-GPU-001", "F-DEMO-GPU-002"]
    late, *_ = finished.records
    assert late.waited_seconds > 0


def test_claims_spread_over_the_gpus(bench: Callable[..., Bench]) -> None:
    """Each claim has one GPU for all of its trials, and all GPUs are used. Claims that measure time are alone there."""
    whole = bench(honest)
    gpus = tuple(Gpu(index, f"GPU-{index}", "NVIDIA Test", "9.0", 80 << 30, "NVML", False) for index in range(2))
    whole.engine._host = replace(whole.engine._host, gpus=gpus, cpu_count=8)
    both, used, running = threading.Barrier(2), dict[str, set[Gpu | None]](), list[tuple[str, Gpu | None]]()

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        used.setdefault(request.contract.id, set()).add(request.gpu)
        running.append((request.contract.id, request.gpu))
        others = {claim for claim, gpu in running if gpu == request.gpu and claim != request.contract.id}
        if request.contract.profiles[request.profile].exclusive:
            assert not others
            both.wait(60)  # the claims that measure time, on both GPUs at once
        running.remove((request.contract.id, request.gpu))
        return honest(request)

    whole.executor.behave = behave
    on_gpu = replace(whole.contract.profiles["reduced"], requires={"device": "cuda", "memory_gib": 60})
    shared = replace(whole.contract, profiles={"reduced": on_gpu})
    kinds = [timed(shared), shared]
    claims = [replace(kinds[number // 2], id=f"F-DEMO-{number}-001") for number in range(4)]
    finished = whole.run(*claims, profile="reduced")
    assert len(finished.records) == 4
    assert [len(used[claim.id]) for claim in claims] == [1] * 4
    assert {gpu for devices in used.values() for gpu in devices} == set(gpus)
    assert [record.device.uuid for record in finished.records] == [
        gpu.uuid for claim in claims for gpu in used[claim.id] if gpu is not None
    ]


def test_claims_that_need_little_memory_spread_too(bench: Callable[..., Bench]) -> None:
    """The time of their trials decides, although the first GPU has room for all."""
    whole = bench(honest)
    gpus = tuple(Gpu(index, f"GPU-{index}", "NVIDIA Test", "9.0", 80 << 30, "NVML", False) for index in range(4))
    whole.engine._host = replace(whole.engine._host, gpus=gpus, cpu_count=16)
    on_gpu = replace(whole.contract.profiles["reduced"], requires={"device": "cuda", "memory_gib": 1})
    claims = [replace(whole.contract, id=f"F-DEMO-{number}-001", profiles={"reduced": on_gpu}) for number in range(8)]
    together = threading.Barrier(8)

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        if request.subject.endswith(":Sorter"):
            together.wait(60)  # so that no claim ends before all have begun
        return honest(request)

    whole.executor.behave = behave
    used = Counter(record.device.uuid for record in whole.run(*claims, profile="reduced").records)
    assert used == {gpu.uuid: 2 for gpu in gpus}
