"""How many trials run side by side, by what they need and what the machine has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.contract import Contract
from harness.machine.host import Host
from harness.running.demand import MOST_PARALLEL, Demand
from harness.running.plan import make_plan
from harness.running.request import RunRequest
from harness.running.scheduler import Schedule, Task
from tests.contracts import timed
from tests.machine.test_host import a_gpu, a_host
from tests.run.test_plan import ANY, CUDA, contract


def side_by_side(claim: Contract, host: Host, **options: Any) -> int:
    """How many of ten trials of a claim begin at once."""
    request = RunRequest(**options)
    plan = make_plan(claim, host, request)
    demand = Demand(host, [plan], request.jobs)
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
    ],
)
def test_as_many_as_fit(requires: dict[str, Any], options: dict[str, Any], parallel: int) -> None:
    """Into the memory of the GPU or the system, also for any -j, and at least one."""
    host = a_host(a_gpu(memory_bytes=140 << 30), memory_bytes=32 << 30, cpu_count=64)
    assert side_by_side(contract(requires), host, **options) == parallel


def test_no_more_than_there_are_trials_processors_and_devices() -> None:
    """Four on each device are the most by default."""
    few = replace(contract(ANY), mutants=contract(ANY).mutants[:1])
    assert side_by_side(few, a_host(cpu_count=64)) == 2
    assert side_by_side(contract(ANY), a_host(cpu_count=3)) == 3
    assert side_by_side(contract(CUDA), a_host(a_gpu(), a_gpu(index=1, uuid="GPU-b"), cpu_count=64)) == 8


def test_a_claim_that_measures_time_runs_alone() -> None:
    """This holds for any -j. On each GPU one trial can have it."""
    assert side_by_side(timed(contract(ANY)), a_host(), jobs=8) == 1
    two = a_host(a_gpu(), a_gpu(index=1, uuid="GPU-b"), cpu_count=64)
    assert side_by_side(timed(contract(CUDA)), two, jobs=8) == 2
