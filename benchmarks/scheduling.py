"""What a suite costs beside its work: imports, waiting and the harness itself. All arms of a table run in turns.

1. Claims of this repository: wall time of one run, relative to the sum of its trials' seconds and one import of their
   libraries. On two cores the target is at most 0.65.
2. Trials that do nothing: seconds of wall time and of the harness's processors for each, beside a bare fork. The target
   is at most 0.06 s.
3. Thirty scripts that sleep for two seconds, four at a time: as trials of one run, under ReFrame's asynchronous policy,
   and under pytest-xdist, if these are installed. The ratio is to 30 * 2 s / 4.
4. On a GPU, trials that only add a number there: as table 2, beside a fork of a process with torch that does the same,
   and a process that imports torch first.

    python -m benchmarks.scheduling [CLAIM...] [--mutants]
    python -m benchmarks.scheduling --of RUN.json [OTHER.json]
    python -m benchmarks.scheduling [CLAIM...] --gpus 1 2 4

The second form prints what runs came to that wrote `--json RUN.json`: the sum of their trials' seconds against wall
time, how busy their GPUs were (telemetry of the subjects' trials), and the efficiency of a run on several GPUs beside
the first. The third form runs nothing: it gives the newest full runs of the evidence, with the seconds that their
trials took on a GPU, to the schedule of a host with so many GPUs of 140 GiB, twelve slots for each.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pandas as pd

from benchmarks.overhead import contract, project
from harness.contract.project import Project
from harness.machine.host import Gpu, probe
from harness.machine.requirements import Requirements
from harness.running.demand import Demand
from harness.running.plan import make_plan
from harness.running.request import RunRequest
from harness.running.scheduler import Amounts, Schedule, Task

SCRIPTS, SECONDS, LANES = 30, 2.0, 4
IMPORT = "import torch, transformers; from transformers import Qwen2ForCausalLM, Qwen2Config"
ADDING = """
import torch

from harness import Trial
from bench.adding import Adding


def falsify(trial: Trial[Adding]) -> None:
    with trial.subject_fault():
        total = trial.subject.total([1, 2, 3])
    torch.zeros(1, device=trial.device).sum().item()
    trial.resolve(device=trial.device)
    trial.measure(total=total)
"""
"""A falsifier that uses its device for as little as possible."""
BARE = "import torch; torch.zeros(1, device='cuda').sum().item()"
REFRAME = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class Sleeps(rfm.RunOnlyRegressionTest):
    valid_systems = ['*']
    valid_prog_environs = ['*']
    executable = 'sleep'
    executable_opts = ['{seconds}']
    number = parameter(range({scripts}))

    @sanity_function
    def ended(self):
        return sn.assert_eq(self.job.exitcode, 0)
"""
REFRAME_SITE = """
site_configuration = {{
    'systems': [{{'name': 'here', 'hostnames': ['.*'], 'partitions': [{{
        'name': 'cpu', 'scheduler': 'local', 'launcher': 'local', 'environs': ['builtin'], 'max_jobs': {lanes}}}]}}],
    'environments': [{{'name': 'builtin'}}],
}}
"""


def harness(arguments: list[str], folder: Path) -> tuple[float, list[dict[str, Any]], float]:
    """Wall time of a run, its records, and the processor time of the harness without its trials."""
    before = time.perf_counter()
    with tempfile.TemporaryDirectory() as evidence:
        command = [sys.executable, "-m", "harness", "run", *arguments, "--evidence", evidence, "--json", "-"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            records: list[dict[str, Any]] = json.loads(process.stdout.read())["records"]
            _, _, used = os.wait4(process.pid, 0)
            process.returncode = 0
    return time.perf_counter() - before, records, used.ru_utime + used.ru_stime


def trial_seconds(records: list[dict[str, Any]]) -> list[float]:
    """Of all trials that ran."""
    mutants = [mutant["seconds"] for record in records for mutant in record["mutants"] if mutant["seconds"]]
    return [*(record["trial_seconds"] for record in records), *mutants]


def clock(command: list[str], folder: Path) -> float:
    """Wall time of a command in seconds."""
    before = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return time.perf_counter() - before


def suite(claims: list[str], mutants: bool) -> pd.DataFrame:
    """Claims of this repository, with the default number of trials at a time and with one."""
    root = Path(__file__).parents[1]
    rows = []
    for jobs in ([], ["-j", "1"]):
        imports = clock([sys.executable, "-c", IMPORT], root)
        options = [*(claims or ["--all"]), "--profile", "reduced", *([] if mutants else ["--no-mutants"]), *jobs]
        wall, records, _ = harness(options, root)
        trials = trial_seconds(records)
        rows.append(
            {
                "at a time": jobs[-1] if jobs else "default",
                "claims": len(records),
                "trials": len(trials),
                "sum of trials (s)": sum(trials),
                "one import (s)": imports,
                "wall (s)": wall,
                "wall / (sum + import)": wall / (sum(trials) + imports),
            }
        )
    return pd.DataFrame(rows).round(3)


def runs(paths: list[Path]) -> pd.DataFrame:
    """What finished runs came to. The efficiency is to the first one, for runs of the same claims and trials."""
    rows: list[dict[str, Any]] = []
    for path in paths:
        run = json.loads(path.read_text())
        records = run["records"]
        trials = trial_seconds(records)
        gpus = {record["device"].get("uuid") for record in records if record["trial_seconds"]} - {None}
        wall = run["seconds"]
        telemetry = [Path(one["bundle"]) / "telemetry.csv" for one in records if one["bundle"] and gpus]
        busy = [pd.read_csv(one) for one in telemetry if one.exists()]  # the bundles may have stayed on their machine
        samples = pd.concat(busy)["gpu_utilisation_percent"] if busy else pd.Series(dtype=float)
        rows.append(
            {
                "run": path.stem,
                "claims": len(records),
                "trials": len(trials),
                "GPUs": len(gpus),
                "sum of trials (s)": sum(trials),
                "wall (s)": wall,
                "wall / sum": wall / sum(trials),
                "GPU busy (%)": samples.mean(),
            }
        )
    first = rows[0]
    for row in rows:
        same = row["trials"] == first["trials"] and row["GPUs"]
        spent = row["wall (s)"] * row["GPUs"]
        row["efficiency"] = first["wall (s)"] * first["GPUs"] / spent if same else None
    return pd.DataFrame(rows).round(3)


def scheduled(gpus: int, claims: list[str]) -> dict[str, Any]:
    """What the schedule of a host with so many GPUs makes of the evidence's full runs of these claims, or of all."""
    ours = Project.find(Path(__file__).parent)
    own = [Gpu(index, f"GPU-{index}", "NVIDIA H200", "9.0", 140 << 30, "NVML", False) for index in range(gpus)]
    host = replace(probe(), gpus=tuple(own), gpu_reason=None, cpu_count=16 * gpus, memory_bytes=gpus << 37)
    records = [json.loads(path.read_text()) for path in sorted(ours.evidence.glob("*/*/*/record.json"))]
    full = {one["id"]: one for one in records if one["device"]["type"] == "cuda" and one["profile"] == "full"}
    full = {name: one for name, one in full.items() if name in claims or not claims}
    plans, trials = [], []
    for record in full.values():
        claim = ours.contract(record["id"])
        needs = {name: claim.profiles["full"].requires.get(name) for name in ("device", "memory_gib", "gpus")}
        asked = {name: one for name, one in needs.items() if one is not None}
        profile = replace(claim.profiles["full"], requires=cast(Requirements, asked))
        plans.append(make_plan(replace(claim, profiles={"full": profile}), host, RunRequest(profile="full")))
        trials.append({one["id"]: one["seconds"] for one in record["mutants"] if one["seconds"]})
    demand = Demand(host, plans, 12 * gpus)
    schedule, ends, now = Schedule(demand.capacity), list[tuple[float, str, Amounts]](), 0.0
    for index, (plan, record) in enumerate(zip(plans, full.values(), strict=True)):
        whole = record["trial_seconds"] + sum(trials[index].values())
        schedule.add(Task(f"{index} ", demand.ways(plan), (not plan.profile.exclusive, -whole), whole))
    while not schedule.is_over:
        for task, amounts in schedule.start():
            number, _, mutant = task.name.partition(" ")
            seconds = trials[int(number)].get(mutant, list(full.values())[int(number)]["trial_seconds"])
            heapq.heappush(ends, (now + seconds, task.name, amounts))
        now, name, amounts = heapq.heappop(ends)
        schedule.end(name)
        number, _, mutant = name.partition(" ")
        for one in () if mutant else plans[int(number)].contract.mutants:
            if one.id in trials[int(number)]:
                seconds, exclusive = trials[int(number)][one.id], plans[int(number)].profile.exclusive
                rank = (not exclusive, -seconds)
                schedule.add(Task(f"{number} {one.id}", (demand.of_mutant(one, amounts),), rank, seconds))
    total = sum(one["trial_seconds"] for one in full.values()) + sum(sum(one.values()) for one in trials)
    count = len(full) + sum(map(len, trials))
    return {"GPUs": gpus, "claims": len(full), "trials": count, "sum of trials (s)": total, "wall (s)": now}


def idle_trials(folder: Path, trials: int, device: str) -> dict[str, float]:
    """What a trial that does nothing, or on a GPU next to nothing, costs: the difference between many and one."""
    project(folder, 0.0)
    path = folder / "contracts" / "F-BENCH-ADD-001.json"
    claim = json.loads(path.read_text())
    (mutant,) = claim["mutants"]
    if device == "cuda":
        (folder / "bench" / "on_gpu.py").write_text(ADDING)
        claim["falsifier"] = "bench.on_gpu:falsify"
        claim["profiles"]["reduced"]["requires"]["device"] = "cuda"
    rows = []
    for count in (1, trials):
        claim["mutants"] = [{**mutant, "id": f"off-by-one-{number}"} for number in range(count)]
        path.write_text(json.dumps(claim))
        wall, records, used = harness(["F-BENCH-ADD-001", "-j", "1"], folder)
        rows.append({"wall": wall, "used": used, "trials": sum(trial_seconds(records))})
    few, many = rows
    return {f"{name} (s)": (many[name] - few[name]) / (trials - 1) for name in few}


def fork(code: str = "") -> float:
    """Seconds of a fork of this process that runs some code and exits at once."""
    before = time.perf_counter()
    for _ in range(20):
        if not (pid := os.fork()):
            try:
                exec(code)
            except BaseException:
                os._exit(1)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit(f"a fork did not end well: {code}")
    return (time.perf_counter() - before) / 20


def gpu_trials(folder: Path, trials: int) -> dict[str, float]:
    """What a trial costs that does next to nothing on a GPU, beside the same without the harness."""
    started = clock([sys.executable, "-c", BARE], folder.parent)
    each = idle_trials(folder, trials, "cuda")
    import torch  # noqa: F401  # so that the forks have it

    return {**each, "in a fork with torch (s)": fork(BARE), "in a new process (s)": started}


def scripts(folder: Path) -> pd.DataFrame:
    """The same sleeping scripts under each tool."""
    project(folder, SECONDS)
    shutil.rmtree(folder / "contracts")
    (folder / "contracts").mkdir()
    for number in range(SCRIPTS):
        claim = {**contract(SECONDS), "id": f"F-BENCH-ADD-{number:03}"}
        (folder / "contracts" / f"{claim['id']}.json").write_text(json.dumps(claim))
    body = f"import time\nimport pytest\n@pytest.mark.parametrize('n', range({SCRIPTS}))\n"
    (folder / "test_sleep.py").write_text(f"{body}def test_sleeps(n):\n    time.sleep({SECONDS})\n")
    (folder / "sleeps.py").write_text(REFRAME.format(seconds=SECONDS, scripts=SCRIPTS))
    (folder / "site.py").write_text(REFRAME_SITE.format(lanes=LANES))
    arms = {"harness": harness(["--all", "--no-mutants", "-j", str(LANES)], folder)[0]}
    with_xdist = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(LANES), "test_sleep.py"]
    arms["pytest-xdist"] = clock(with_xdist, folder)
    if (reframe := shutil.which("reframe")) is not None:
        asynchronous = [reframe, "-C", "site.py", "-c", "sleeps.py", "-r", "--exec-policy=async"]
        arms["ReFrame, asynchronous"] = clock(asynchronous, folder)
    least = SCRIPTS * SECONDS / LANES
    return pd.DataFrame([{"tool": name, "wall (s)": one, "ratio": one / least} for name, one in arms.items()]).round(3)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", nargs="*", help="by default, all")
    parser.add_argument("--mutants", action="store_true", help="with the mutants, which takes many times longer")
    parser.add_argument("--tables", default="123", help="which of the tables, such as 4")
    parser.add_argument("--gpus", nargs="+", type=int, help="only schedule the evidence's runs on so many GPUs")
    parser.add_argument("--of", nargs="+", type=Path, metavar="RUN.json", help="only say what these runs came to")
    arguments = parser.parse_args()
    if arguments.gpus:
        table = pd.DataFrame([scheduled(count, arguments.claims) for count in arguments.gpus])
        table["wall / sum"] = table["wall (s)"] / table["sum of trials (s)"]
        used = table["wall (s)"] * table["GPUs"]
        table["efficiency"] = used.iloc[0] / used
        print(table.round(3).to_string(index=False))
        return
    if arguments.of:
        print(runs(arguments.of).to_string(index=False))
        return
    with tempfile.TemporaryDirectory() as name:
        if "1" in arguments.tables:
            print(suite(arguments.claims, arguments.mutants).to_string(index=False), end="\n\n")
        if "2" in arguments.tables:
            idle = {**idle_trials(Path(name) / "idle", 40, "cpu"), "a bare fork (s)": fork()}
            print(pd.DataFrame([idle]).round(4).to_string(index=False), end="\n\n")
        if "3" in arguments.tables:
            print(scripts(Path(name) / "scripts").to_string(index=False), end="\n\n")
        if "4" in arguments.tables:
            print(pd.DataFrame([gpu_trials(Path(name) / "gpu", 20)]).round(4).to_string(index=False))
    print(f"load of this machine: {os.getloadavg()[0] / (os.cpu_count() or 1):.1f} for each core")


if __name__ == "__main__":
    main()
