"""How long the schedule takes for the evidence's full runs on a host with several GPUs. Nothing runs.

Each trial takes the seconds that its newest full run took on one GPU. The host has GPUs of 140 GiB, 16 processors and
128 GiB of memory for each GPU, and twelve slots for each. Effects of trials on each other do not show.

    python -m benchmarks.simulated_gpus [CLAIM...] [--gpus 1 2 4 8]
"""

from __future__ import annotations

import argparse
import heapq
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pandas as pd

from harness.contract.project import Project
from harness.machine.host import Gpu, Host, probe
from harness.machine.requirements import Requirements
from harness.running.plan import Plan, make_plan
from harness.running.request import RunRequest
from harness.running.resource_requests import ResourceRequests
from harness.running.scheduler import Amounts, Schedule, Task

SLOTS = 12
"""Trials at a time for each GPU."""


@dataclass(frozen=True)
class Run:
    """A full run of a claim, with the seconds that its trials took."""

    plan: Plan
    subject: float
    mutants: dict[str, float]

    @property
    def seconds(self) -> float:
        """The sum over all trials."""
        return self.subject + sum(self.mutants.values())


def host_of(gpus: int) -> Host:
    """Return a host with so many GPUs."""
    own = [Gpu(index, f"GPU-{index}", "NVIDIA H200", "9.0", 140 << 30, "NVML", False) for index in range(gpus)]
    return replace(probe(), gpus=tuple(own), gpu_reason=None, cpu_count=16 * gpus, memory_bytes=gpus << 37)


def full_runs(host: Host, claims: list[str]) -> list[Run]:
    """Return the newest full run on a GPU of each claim in the evidence, planned for a host."""
    project = Project.find(Path(__file__).parent)
    records = [json.loads(path.read_text()) for path in sorted(project.evidence.glob("*/*/*/record.json"))]
    full = {
        record["id"]: record for record in records if record["device"]["type"] == "cuda" and record["profile"] == "full"
    }
    found = []
    for name, record in full.items():
        if claims and name not in claims:
            continue
        claim = project.contract(name)
        needs = {key: claim.profiles["full"].requires.get(key) for key in ("device", "memory_gib", "gpus")}
        requires = cast(Requirements, {key: value for key, value in needs.items() if value is not None})
        claim = replace(claim, profiles={"full": replace(claim.profiles["full"], requires=requires)})
        mutants = {mutant["id"]: mutant["seconds"] for mutant in record["mutants"] if mutant["seconds"]}
        found.append(Run(make_plan(claim, host, RunRequest(profile="full")), record["trial_seconds"], mutants))
    return found


def wall_seconds(host: Host, runs: list[Run], slots: int) -> float:
    """Return when the last trial ends. Mutants start after their subject, as in a run."""
    demand = ResourceRequests(host, [run.plan for run in runs], slots)
    schedule, now = Schedule(demand.capacity), 0.0
    ends: list[tuple[float, str, Amounts, Run, str]] = []
    trials: dict[str, tuple[float, Run, str]] = {}
    for number, run in enumerate(runs):
        trials[f"{number}"] = run.subject, run, ""
        rank = (not run.plan.profile.exclusive, -run.seconds)
        schedule.add(Task(f"{number}", demand.ways(run.plan), rank, run.seconds))
    while not schedule.is_over:
        for task, amounts in schedule.start():
            seconds, run, mutant = trials[task.name]
            heapq.heappush(ends, (now + seconds, task.name, amounts, run, mutant))
        now, name, amounts, run, ended = heapq.heappop(ends)
        schedule.end(name)
        for declared in () if ended else run.plan.contract.mutants:
            if declared.id in run.mutants:
                seconds = run.mutants[declared.id]
                trials[f"{name} {declared.id}"] = seconds, run, declared.id
                rank = (not run.plan.profile.exclusive, -seconds)
                schedule.add(Task(f"{name} {declared.id}", (demand.of_mutant(declared, amounts),), rank, seconds))
    return now


def simulated(gpus: int, claims: list[str]) -> dict[str, Any]:
    """Return the row of a host with so many GPUs."""
    host = host_of(gpus)
    runs = full_runs(host, claims)
    return {
        "GPUs": gpus,
        "claims": len(runs),
        "trials": sum(1 + len(run.mutants) for run in runs),
        "sum of trials (s)": sum(run.seconds for run in runs),
        "wall (s)": wall_seconds(host, runs, SLOTS * gpus),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", nargs="*", help="by default, all with a full run on a GPU")
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 2, 4, 8])
    arguments = parser.parse_args()
    table = pd.DataFrame([simulated(count, arguments.claims) for count in arguments.gpus])
    table["wall / sum"] = table["wall (s)"] / table["sum of trials (s)"]
    used = table["wall (s)"] * table["GPUs"]
    table["efficiency"] = used.iloc[0] / used
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
