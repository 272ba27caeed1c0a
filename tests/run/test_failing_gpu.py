"""Claims on several GPUs: a GPU that fails is not used any more, and its claims run on another one."""

from __future__ import annotations

import copy
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.base.vocabulary import Fate, Verdict
from harness.contract import Contract
from harness.evidence.rejudge import rejudge
from harness.execution.executor import TrialRequest
from harness.execution.lease import LeaseUnavailable, lease
from harness.judging.observation import Ending, EndingKind, Phase
from harness.machine.health import Health
from harness.machine.host import Gpu
from harness.running import claim_run, events
from tests.contracts import timed
from tests.recorded import replay
from tests.run.pretending import BROKEN, Bench, honest, only

GPUS = tuple(Gpu(index, f"GPU-{index}", "NVIDIA H200", "9.0", 140 << 30, "NVML", False) for index in range(2))
Disaster = Callable[[ModuleType, int], None]


def is_subject(request: TrialRequest) -> bool:
    return request.subject.endswith(":Sorter")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A driver with two GPUs."""
    module = replay("h200", monkeypatch, tmp_path)
    (device,) = module.RECORDING["devices"]
    idle = {"nvmlDeviceGetComputeRunningProcesses": {"value": []}}
    devices = [{**copy.deepcopy(device), **idle, "nvmlDeviceGetUUID": {"value": gpu.uuid}} for gpu in GPUS]
    monkeypatch.setitem(module.RECORDING, "devices", devices)
    return module


def on_gpus(whole: Bench, count: int = 2) -> Contract:
    """The claim for a GPU, on a machine with so many of them."""
    whole.engine._host = replace(whole.engine._host, gpus=GPUS[:count])
    profile = replace(whole.contract.profiles["reduced"], requires={"device": "cuda", "memory_gib": 60})
    return replace(whole.contract, profiles={"reduced": profile})


def xid(number: int) -> Disaster:
    return lambda driver, index: driver.xids.setdefault(index, []).append(number)


def fall_off(driver: ModuleType, index: int) -> None:
    driver.lost.add(index)


def fill(driver: ModuleType, index: int) -> None:
    """A process without a lease takes all memory."""
    device = driver.RECORDING["devices"][index]
    total = device["nvmlDeviceGetMemoryInfo"]["value"]["total"]
    device["nvmlDeviceGetMemoryInfo"] = {"value": {"total": total, "free": 0, "used": total}}
    used = [{"pid": os.getppid(), "usedGpuMemory": total}]
    device["nvmlDeviceGetComputeRunningProcesses"] = {"value": used}


def behaving(
    driver: ModuleType, disaster: Disaster, chosen: Callable[[TrialRequest], bool], ran: list[tuple[str, str]]
) -> Callable[[TrialRequest], Mapping[str, Any] | Ending]:
    """The first of the chosen trials fails by the given event. All others are honest."""

    def behave(request: TrialRequest) -> Mapping[str, Any] | Ending:
        assert request.gpu is not None
        ran.append((request.subject.rpartition(":")[2], request.gpu.uuid))
        if chosen(request) and request.gpu.index == 0:
            disaster(driver, 0)
            return Ending(EndingKind.NOT_MEASURED, Phase.SUBJECT, "no memory") if disaster is fill else BROKEN
        return honest(request)

    return behave


@pytest.mark.parametrize("disaster", [xid(79), fall_off, fill], ids=["Xid 79", "lost", "memory"])
@pytest.mark.parametrize("chosen", [is_subject, lambda request: not is_subject(request)], ids=["subject", "mutant"])
def test_the_claim_begins_again_on_another_gpu(
    bench: Callable[..., Bench], driver: ModuleType, disaster: Disaster, chosen: Callable[[TrialRequest], bool]
) -> None:
    """No verdict depends on a trial of the failed GPU. All trials that count are of one device."""
    ran: list[tuple[str, str]] = []
    whole = bench(behaving(driver, disaster, chosen, ran))
    record = only(whole.run(on_gpus(whole), profile="reduced"))
    assert (record.verdict, record.device.uuid) == (Verdict.PASS, "GPU-1")
    assert list(record.withdrawn) == ["GPU-0"]
    assert [subject for subject, uuid in ran if uuid == "GPU-1"] == ["Sorter", "Forgetful"]
    (result,) = whole.sealed
    observed = {name: mutant.observation for name, mutant in result.mutants.items()}
    assert rejudge(record, result.contract, result.subject.observation, observed).findings == ()


def test_what_waits_for_the_failed_gpu_moves(bench: Callable[..., Bench], driver: ModuleType) -> None:
    """Claims that have not begun run on the other GPU."""
    ran: list[tuple[str, str]] = []
    whole = bench(behaving(driver, xid(119), is_subject, ran))
    claim = timed(on_gpus(whole))
    others = [replace(claim, id=f"F-DEMO-{number}-001") for number in range(4)]
    records = whole.run(*others, profile="reduced", jobs=1).records
    assert {(record.verdict, record.device.uuid) for record in records} == {(Verdict.PASS, "GPU-1")}
    assert [uuid for _, uuid in ran].count("GPU-0") == 1


def test_a_claim_that_needs_two_gpus_gets_both(bench: Callable[..., Bench], driver: ModuleType) -> None:
    """The trials run one after the other, because of their memory. The first GPU is the device."""
    ran: list[tuple[str, ...]] = []

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        assert request.gpu is not None
        ran.append(tuple(gpu.uuid for gpu in (request.gpu, *request.others)))
        return honest(request)

    whole = bench(behave)
    claim = on_gpus(whole)
    profile = replace(claim.profiles["reduced"], requires={"device": "cuda", "gpus": 2, "memory_gib": 100})
    record = only(whole.run(replace(claim, profiles={"reduced": profile}), profile="reduced", jobs=4))
    assert (record.verdict, record.device.uuid) == (Verdict.PASS, ran[0][0])
    assert [set(uuids) for uuids in ran] == [{"GPU-0", "GPU-1"}] * 2


def test_the_leases_of_several_gpus_are_taken_in_one_order(
    bench: Callable[..., Bench], driver: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise two runs whose claims begin with different GPUs would wait for each other."""
    taken = list[tuple[int, float]]()

    def noted(device: Gpu, **options: Any) -> Any:
        taken.append((device.index, options["memory"].gib))
        return lease(device, **options)

    monkeypatch.setattr(claim_run, "lease", noted)
    whole = bench(honest)
    claim = on_gpus(whole)
    profile = replace(claim.profiles["reduced"], requires={"device": "cuda", "gpus": 2, "memory_gib": 10})
    for gpus in (GPUS, GPUS[::-1]):
        whole.engine._host = replace(whole.engine._host, gpus=gpus)
        record = only(whole.run(replace(claim, profiles={"reduced": profile}), profile="reduced"))
        assert record.device.uuid == gpus[0].uuid
    assert taken == [(0, 10), (1, 10)] * 4


def two_of(claim: Contract, **profile: Any) -> Contract:
    """The claim with a profile that needs two GPUs."""
    changed = replace(claim.profiles["reduced"], requires={"device": "cuda", "gpus": 2, "memory_gib": 10}, **profile)
    return replace(claim, profiles={"reduced": changed})


@pytest.mark.parametrize("count", [2, 3])
def test_the_second_gpu_of_a_claim_fails(bench: Callable[..., Bench], driver: ModuleType, count: int) -> None:
    """The claim begins again on two others. Without two others, it is NOT_MEASURED. It never runs on one."""
    ran: list[tuple[str, ...]] = []

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        assert request.gpu is not None
        ran.append(tuple(gpu.uuid for gpu in (request.gpu, *request.others)))
        if is_subject(request):
            driver.xids[1] = [79]
        return honest(request)

    (device, _) = driver.RECORDING["devices"]
    driver.RECORDING["devices"].append({**device, "nvmlDeviceGetUUID": {"value": "GPU-2"}})
    whole = bench(behave)
    claim = two_of(on_gpus(whole))
    third = replace(GPUS[0], index=2, uuid="GPU-2")
    whole.engine._host = replace(whole.engine._host, gpus=(*GPUS, third)[:count])
    record = only(whole.run(claim, profile="reduced"))
    assert list(record.withdrawn) == ["GPU-1"]
    if count == 2:
        assert (record.verdict, ran) == (Verdict.NOT_MEASURED, [("GPU-0", "GPU-1")])
    else:
        assert (record.verdict, ran[1:]) == (Verdict.PASS, [("GPU-0", "GPU-2")] * 2)


def test_a_claim_keeps_the_gpus_that_it_has_a_lease_of(bench: Callable[..., Bench], driver: ModuleType) -> None:
    """While it waits for its second GPU, no other claim of the run waits for its first one."""
    whole, taken, waited = bench(honest), threading.Event(), threading.Event()

    def hold() -> None:
        with lease(GPUS[1], mode="exclusive", holder="F-OTHER-001", wait_seconds=0):
            taken.set()
            assert waited.wait(60)
            time.sleep(1.0)  # in which another claim could begin

    def listen(event: events.Event) -> None:
        whole.heard.append(event)
        if isinstance(event, events.ClaimWaiting) and event.id == "F-DEMO-TWO-001":
            waited.set()

    whole.engine._emit = listen
    claim = replace(timed(two_of(on_gpus(whole))), id="F-DEMO-TWO-001")
    profile = replace(claim.profiles["reduced"], lease_seconds=10.0)
    claim = replace(claim, profiles={"reduced": profile})
    other = replace(claim, id="F-DEMO-ONE-001", profiles={"reduced": replace(profile, requires={"device": "cuda"})})
    whole.engine._host = replace(whole.engine._host, gpus=GPUS[::-1])  # the second one is the device
    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(60)
    records = whole.run(claim, other, profile="reduced").records
    holder.join()
    assert {event.id for event in whole.heard if isinstance(event, events.ClaimWaiting)} == {"F-DEMO-TWO-001"}
    assert [(record.verdict, dict(record.withdrawn)) for record in records] == [(Verdict.PASS, {})] * 2


def test_a_signal_as_a_claim_moves(
    bench: Callable[..., Bench], driver: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was measured, so nothing is sealed."""
    monkeypatch.setattr(Health, "broken", lambda self: "Xid 79" if self._gpu._uuid == GPUS[0].uuid else "")
    whole = bench(honest)

    def listen(event: events.Event) -> None:
        if isinstance(event, events.Remarked):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)  # until the main thread has handled it

    whole.engine._emit = listen
    finished = whole.run(on_gpus(whole), profile="reduced", mutants=False)
    assert (finished.interrupted, finished.records, whole.sealed) == (True, (), [])


def test_a_claim_begins_again_once(bench: Callable[..., Bench], driver: ModuleType) -> None:
    """The GPU fails during three of its trials. Each trial then runs once on the other GPU."""
    ran, together, again = list[tuple[str, str]](), threading.Barrier(3), threading.Event()

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        assert request.gpu is not None
        ran.append((request.subject.rpartition(":")[2], request.gpu.uuid))
        if request.gpu.index == 0 and not is_subject(request):
            last = together.wait(60) == 0
            driver.xids[0] = [79]
            if last:
                again.wait(0.5)  # no trial begins again before all have ended
        elif request.gpu.index == 1:
            again.set()
        return honest(request)

    whole = bench(behave)
    claim = on_gpus(whole)
    (mutant,) = claim.mutants
    profile = replace(claim.profiles["reduced"], requires={"device": "cuda", "memory_gib": 20})
    several = tuple(replace(mutant, id=f"m-{number}") for number in range(3))
    claim = replace(claim, mutants=several, profiles={"reduced": profile})
    record = only(whole.run(claim, profile="reduced", jobs=4))
    assert (record.verdict, record.device.uuid) == (Verdict.PASS, "GPU-1")
    assert [subject for subject, uuid in ran if uuid == "GPU-1"] == ["Sorter", *["Forgetful"] * 3]
    assert len([event for event in whole.heard if isinstance(event, events.Remarked)]) == 1


def test_no_fate_of_a_mutant_is_left_of_the_failed_gpu(bench: Callable[..., Bench], driver: ModuleType) -> None:
    """On the other GPU the subject fails, so no mutant runs there."""
    ran: list[tuple[str, str]] = []
    behave = behaving(driver, xid(79), lambda request: not is_subject(request), ran)
    whole = bench(lambda request: behave(request) if request.gpu and request.gpu.index == 0 else BROKEN)
    record = only(whole.run(on_gpus(whole), profile="reduced"))
    assert (record.verdict, record.device.uuid) == (Verdict.FAIL, "GPU-1")
    assert [mutant.fate for mutant in record.mutants] == [Fate.NOT_RUN]


def test_a_trial_that_ended_well_counts_though_its_gpu_is_full_now(
    bench: Callable[..., Bench], driver: ModuleType
) -> None:
    """The trial had the memory that it needed."""

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        if not is_subject(request):
            fill(driver, 0)
        return honest(request)

    whole = bench(behave)
    record = only(whole.run(on_gpus(whole), profile="reduced"))
    assert (record.verdict, record.device.uuid, record.withdrawn) == (Verdict.PASS, "GPU-0", {})


def test_a_gpu_that_another_run_holds_too_long(
    bench: Callable[..., Bench], driver: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim begins again on the other GPU, and no other claim waits for the first one."""
    taken = list[int]()

    def noted(device: Gpu, **options: Any) -> Any:
        taken.append(device.index)
        return lease(device, **options)

    monkeypatch.setattr(claim_run, "lease", noted)
    whole = bench(honest)
    claim = on_gpus(whole)
    profile = replace(claim.profiles["reduced"], lease_seconds=0.0)
    claims = [replace(claim, id=f"F-DEMO-{name}-001", profiles={"reduced": profile}) for name in "ABC"]
    with lease(GPUS[0], mode="exclusive", holder="F-OTHER-001", wait_seconds=0):
        records = whole.run(*claims, profile="reduced", jobs=1).records
    assert {(record.verdict, record.device.uuid, *record.withdrawn) for record in records} == {
        (Verdict.PASS, "GPU-1", "GPU-0")
    }
    assert taken.count(0) == 1


def test_leases_that_cannot_be_kept_say_nothing_against_a_gpu(
    bench: Callable[..., Bench], driver: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leases fail on the other GPU too."""
    calls = list[int]()

    def refuse(device: Gpu, **options: Any) -> Any:
        calls.append(device.index)
        raise LeaseUnavailable("leases cannot be kept")

    monkeypatch.setattr(claim_run, "lease", refuse)
    whole = bench(honest)
    record = only(whole.run(on_gpus(whole), profile="reduced"))
    assert (record.verdict, record.withdrawn, calls) == (Verdict.NOT_MEASURED, {}, [0])


def test_no_trial_begins_on_a_gpu_whose_memory_is_taken(bench: Callable[..., Bench], driver: ModuleType) -> None:
    """A process without a lease has the memory."""
    ran: list[tuple[str, str]] = []
    whole = bench(behaving(driver, fill, lambda _: False, ran))
    fill(driver, 0)
    record = only(whole.run(on_gpus(whole), profile="reduced"))
    assert (record.verdict, list(record.withdrawn)) == (Verdict.PASS, ["GPU-0"])
    assert {uuid for _, uuid in ran} == {"GPU-1"}


def test_after_an_interruption_no_claim_begins_again(bench: Callable[..., Bench], driver: ModuleType) -> None:
    """The measurements from before the GPU failed are sealed."""

    def behave(request: TrialRequest) -> Mapping[str, Any] | Ending:
        if is_subject(request):
            return honest(request)
        os.kill(os.getpid(), signal.SIGINT)
        assert whole.executor.interrupted.wait(60)
        driver.xids[0] = [79]
        return Ending(EndingKind.INTERRUPTED, Phase.SUBJECT, "the run was interrupted")

    whole = bench(behave)
    finished = whole.run(on_gpus(whole), profile="reduced")
    assert finished.interrupted
    assert (only(finished).verdict, only(finished).device.uuid) == (Verdict.NOT_MEASURED, "GPU-0")


def test_what_a_program_can_cause_is_the_subjects_fault(bench: Callable[..., Bench], driver: ModuleType) -> None:
    """Xid 31 is a bad address in a kernel. The subject's FAIL stays, and the GPU is used further."""
    whole = bench(behaving(driver, xid(31), is_subject, []))
    record = only(whole.run(on_gpus(whole), profile="reduced"))
    assert (record.verdict, record.device.uuid, record.withdrawn) == (Verdict.FAIL, "GPU-0", {})


def test_there_is_no_other_gpu(bench: Callable[..., Bench], driver: ModuleType) -> None:
    """A FAIL on the broken GPU becomes NOT_MEASURED."""
    whole = bench(behaving(driver, xid(48), is_subject, []))
    record = only(whole.run(on_gpus(whole, 1), profile="reduced"))
    assert (record.verdict, record.device.uuid, list(record.withdrawn)) == (Verdict.NOT_MEASURED, "GPU-0", ["GPU-0"])
    assert [mutant.fate for mutant in record.mutants] == [Fate.NOT_RUN]
