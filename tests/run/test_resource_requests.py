"""The number of trials that run side by side, by their needs and by the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.contract import Contract
from harness.machine.host import Host
from harness.running.plan import make_plan
from harness.running.request import RunRequest
from harness.running.resource_requests import MOST_PARALLEL, ResourceRequests
from harness.running.scheduler import Schedule, Task
from tests.contracts import timed
from tests.machine.invented_hosts import a_gpu, a_host
from tests.run.test_plan import ANY, CUDA, contract


def side_by_side(claim: Contract, host: Host, **options: Any) -> int:
    """The number of trials of a claim, of ten, that begin at once."""
    request = RunRequest(**options)
    plan = make_plan(claim, host, request)
    demand = ResourceRequests(host, [plan], request.jobs)
    schedule = Schedule(demand.capacity)
    for number in range(10):
        schedule.add(Task(str(number), demand.ways(plan), (number,)))
    return len(schedule.start())


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
        ({**ANY, "memory_gib": 12}, {"jobs": 3}, 2),
        ({**ANY, "memory_gib": 8}, {}, 3),
        ({**ANY, "disk_gib": 20}, {}, 2),
        ({**CUDA, "disk_gib": 20}, {}, 2),
    ],
)
def test_as_many_as_fit(requires: dict[str, Any], options: dict[str, Any], parallel: int) -> None:
    """The trials must fit into the memory of the GPU or the system, for any -j. At least one runs."""
    host = a_host(a_gpu(memory_bytes=140 << 30), memory_bytes=32 << 30, cpu_count=64)
    assert side_by_side(contract(requires), host, **options) == parallel


def test_no_more_than_there_are_trials_processors_and_devices() -> None:
    """By default, at most four trials run on each device."""
    few = replace(contract(ANY), mutants=contract(ANY).mutants[:1])
    assert side_by_side(few, a_host(cpu_count=64)) == 2
    assert side_by_side(contract(ANY), a_host(cpu_count=3)) == 3
    assert side_by_side(contract(CUDA), a_host(a_gpu(), a_gpu(index=1, uuid="GPU-b"), cpu_count=64)) == 8


@pytest.mark.parametrize(("jobs", "each"), [(None, 4), (6, 3), (5, 3), (1, 1)])
def test_no_gpu_is_crowded_beside_an_idle_one(jobs: int | None, each: int) -> None:
    """If several claims use two GPUs, each GPU has its part of the trials.

    A claim alone runs all of its trials on one.
    """
    host = a_host(a_gpu(), a_gpu(index=1, uuid="GPU-b"), cpu_count=64)
    plan = make_plan(contract(CUDA), host, RunRequest())
    for plans, most in (([plan, plan], each), ([plan], min(jobs or 2 * MOST_PARALLEL, 10))):
        demand = ResourceRequests(host, plans, jobs)
        schedule = Schedule(demand.capacity)
        for number in range(10):
            schedule.add(Task(str(number), demand.ways(plan)[:1], (number,)))
        assert len(schedule.start()) == most


def test_a_claim_that_measures_time_runs_alone() -> None:
    """It runs alone for any -j. On each GPU, only one trial can have it."""
    assert side_by_side(timed(contract(ANY)), a_host(), jobs=8) == 1
    two = a_host(a_gpu(), a_gpu(index=1, uuid="GPU-b"), cpu_count=64)
    assert side_by_side(timed(contract(CUDA)), two, jobs=8) == 2


def test_a_gpu_without_memory_of_its_own_shares_the_systems() -> None:
    """On a GB10, for example, GPU and system share the memory."""
    host = a_host(a_gpu(unified=True, memory_bytes=128 << 30), memory_bytes=128 << 30, cpu_count=64)
    plan = make_plan(contract({**CUDA, "memory_gib": 40}), host, RunRequest())
    demand = ResourceRequests(host, [plan], None)
    (way,) = demand.ways(plan)
    assert (demand.memory(way).gib, round(demand.memory(way).room_gib)) == (40, 115)
    assert way.keys() == demand.ways(make_plan(contract(ANY), a_host(), RunRequest()))[0].keys() - {"quiet"} | {
        "GPU GPU-a"
    }


def test_a_claim_that_measures_time_has_all_of_its_gpus_alone() -> None:
    """Neither GPU takes another trial meanwhile. The claim cannot move to a single GPU."""
    host = a_host(a_gpu(), a_gpu(index=1, uuid="GPU-b"), cpu_count=64)
    plan = make_plan(timed(contract({**CUDA, "gpus": 2, "memory_gib": 5})), host, RunRequest(jobs=4))
    demand = ResourceRequests(host, [plan], 4)
    (way, other) = demand.ways(plan)
    assert [amount for name, amount in way.items() if "memory" in name] == [5, 5]
    assert (way["GPU GPU-a"], way["GPU GPU-b"]) == (4, 4)
    demand.withdraw(plan.gpus[0], "Xid 79")
    assert not demand.has_enough(plan)
    assert demand.ways(plan) == (way, other)


def test_a_mutant_needs_what_its_subject_does() -> None:
    """A mutant can state that it needs less memory, or that it shares the subject's device."""
    host = a_host(a_gpu(memory_bytes=140 << 30), cpu_count=64)
    plan = make_plan(timed(contract({**CUDA, "memory_gib": 60})), host, RunRequest(jobs=4))
    demand = ResourceRequests(host, [plan], 4)
    (way,), mutant = demand.ways(plan), plan.contract.mutants[0]
    assert demand.of_mutant(mutant, way) == way
    assert demand.memory(demand.of_mutant(replace(mutant, memory_gib=5.0), way)).gib == 5.0
    assert demand.memory(demand.of_mutant(replace(mutant, memory_gib=90.0), way)).gib == 60
    shared = demand.of_mutant(replace(mutant, shares=True), way)
    assert (shared["slots"], shared["GPU GPU-a"], demand.memory(shared).gib) == (1, 1, 60)
    timed_here = make_plan(timed(contract(ANY)), host, RunRequest(device="cpu", jobs=4))
    (way,) = demand.ways(timed_here)
    assert (way["slots"], way["quiet"]) == (4, 4)
    shared = demand.of_mutant(replace(mutant, shares=True), way)
    assert (shared["slots"], shared["quiet"]) == (1, 1)


def test_trials_share_the_processors() -> None:
    """A trial that runs alone has all of them."""
    claim, host = contract(ANY), a_host(cpu_count=64)
    for one, threads in ((claim, 16), (timed(claim), 64)):
        plan = make_plan(one, host, RunRequest(jobs=4))
        demand = ResourceRequests(host, [plan], 4)
        assert [demand.threads(way) for way in demand.ways(plan)] == [threads]


def test_if_all_gpus_failed_a_claim_for_them_runs_on_no_processor() -> None:
    """The claim keeps its GPUs, and is NOT_MEASURED."""
    host = a_host(a_gpu(), a_gpu(index=1, uuid="GPU-b"))
    plan = make_plan(contract(CUDA), host, RunRequest())
    demand = ResourceRequests(host, [plan], 1)
    before = demand.ways(plan)
    demand.withdraw(plan.gpus[0], "Xid 79")
    assert demand.ways(plan) == before[1:]
    demand.withdraw(plan.gpus[1], "Xid 79")
    assert demand.ways(plan) == before
    assert not demand.has_enough(plan)
