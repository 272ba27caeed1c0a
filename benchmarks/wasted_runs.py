"""How soon `harness watch` refutes a wasted run, and whether it leaves healthy ones alone.

    python -m benchmarks.wasted_runs --jobs 14 --budget 560 --results runs.jsonl

1. wasted: each defect of `benchmarks.wasted_trainers` in three trainers, which are asked for 30,000 steps. Printed is
   the first refutation by the check that the defect violates, and its second as a share of the run's time.
2. gpu: the same with the defects that need a GPU, beside healthy runs on it. Left out where there is none.
3. healthy: runs of five trainers to their end, with `--on-refute kill` and the same bounds.
4. killed: SIGKILL for the watcher or the job at a random moment; a watcher is started again. The evidence must be
   sound.
5. cost: see `benchmarks.wasted_cost`. It runs when nothing else does.

The bounds are smaller than the defaults by the factor by which these runs are shorter than real ones. Each result is a
line of the file of results, with the commit, as soon as it is there. Called again with the same file and commit, the
rest is run. Of a tree with changes that are not committed, no result counts again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.wasted_cost import compared, pair
from benchmarks.wasted_gpu import GPU_DEFECTS
from benchmarks.wasted_jobs import (
    EVERY,
    ROOT,
    SHORT,
    SHORT_EVERY,
    STEPS,
    TRAINERS,
    Run,
    begin,
    children,
    is_sound,
    prepare,
    resumed,
)
from benchmarks.wasted_trainers import AT, DEFECTS, PACE
from harness.machine.host import probe

ALSO = {
    "weights-never-move": {"losses_never_fall"},
    "teacher-as-student": {"losses_constant"},
    "diverging": {"checkpoints_off_rate"},
    "unlearnable-batch": {"losses_never_fall"},
}
"""Defects that two checks rightly find: weights that stand learn nothing; a teacher that is the student leaves a loss
of 0; a rate that is 100 times the stated one moves weights further than the stated one can, and then the loss rises;
labels that change under the same input let no loss fall, and may let it rise."""
KINDS = ("transformers", "plain", "accumulating")
EARLY = ("at its first checkpoint", "before its first step")
"""Where a refutation is in time, however long the start took."""
PATIENCE = 90
"""Seconds after which a run that is not refuted is ended."""
TO_ITS_END = 300
"""Seconds that a run to its end may take."""
TRIES = 2
"""A check of time says nothing while others have the processors, so a miss is tried again. The try is printed."""

CHANGED = "-changed"


@dataclass(frozen=True)
class Result:
    """What a task came to."""

    part: str
    name: str
    good: bool | None
    """None if it cannot be run here."""
    told: str
    numbers: Sequence[float] = ()
    """Of a wasted run the share of its time, of a pair its ratios."""


Task = Callable[[], Result]


def wasted(work: Path, part: str, kind: str, defect: str, device: str, until: float) -> Result:
    """Watch a run with a defect, which its watcher is to end. After that time, a miss is not tried again."""
    check = {**DEFECTS, **GPU_DEFECTS}[defect]
    name = f"{kind} {defect}"
    found: dict[str, Any] | None = None
    for number in range(1, TRIES + 1):
        run = begin(work, kind, f"{part}-{kind}-{defect}-{number}", defect=defect, device=device)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.process.wait(PATIENCE)
        run.end()
        refuted = run.of("refuted")
        found = next((event for event in refuted if event["check"] in {check} | ALSO.get(defect, set())), None)
        if found is not None:
            break
        if not run.of("job") and defect == "disk-nearly-full":
            return Result(part, name, None, "no small disk can be mounted here")
        if time.monotonic() > until:
            break
    if found is None:
        said = [line.strip() for line in run.said().splitlines() if "not judged" in line or "absent" in line]
        steps = sum(kind == "step" for fact in run.of("output") for kind, _, _ in fact["events"])
        said += [f"{steps} steps", *(f"driver: {line}" for line in run.of("driver")[-2:])]
        return Result(part, name, False, f"MISSED: {[event['check'] for event in refuted]}; {'; '.join(said)}")
    share, note = share_of(run, defect, found)
    sound = is_sound(run)
    text = f"{found['check']:<23} step {found['step']:>5} second {found['at']:>6.1f} {share:>7.2%}  {note}"
    text += (f", try {number}" if number > 1 else "") + ("" if sound else "  UNSOUND")
    return Result(part, name, sound and (share <= 0.05 or note in EARLY), text, [share])


def share_of(run: Run, defect: str, found: dict[str, Any]) -> tuple[float, str]:
    """The share of the run's time that was spent, since the defect began if it is one of time; and what led to it.

    The run's time is that of its steps before the defect, times all steps; at least PACE for a step.
    """
    steps: list[float] = []
    for fact in run.of("output"):
        steps += [fact["at"] for kind, _, _ in fact["events"] if kind == "step"]
    begins = {"hanging-loader": AT, "collapsing-throughput": 10 * AT}.get(defect, 0)
    calm = steps[: begins or None] or [0.0]  # of a run that was refuted before its first step
    first, last = calm[0], calm[-1]
    pace = (last - first) / (len(calm) - 1) if len(calm) > 5 else 0.0
    planned = first + max(pace, PACE) * STEPS
    note = f"{found['at'] - last:.1f} s after step {begins}" if begins else ""
    if found["check"].startswith("checkpoints_"):
        note = EARLY[0] if found["step"] == EVERY else "at its second checkpoint"
    if not found["step"]:
        note = EARLY[1]
    return (found["at"] - (last if begins else 0.0)) / planned, note


def healthy(work: Path, part: str, kind: str, seed: int, device: str) -> Result:
    """Watch a healthy run to its end."""
    run = begin(work, kind, f"{part}-healthy-{kind}-{seed}", steps=SHORT, every=SHORT_EVERY, seed=seed, device=device)
    status = run.process.wait(TO_ITS_END)
    ended, refuted = run.of("ended"), run.of("refuted")
    sealed = run.of("sealed")
    verdicts = [fact["verdict"] for fact in sealed]
    good = status == 0 and not refuted and bool(ended) and ended[0]["status"] == 0 and "FAIL" not in verdicts
    text = f"{ended[0]['at'] if ended else 0.0:.1f} s, {', '.join(verdicts)}"
    violated = [violation for fact in sealed if fact["bundle"] for violation in violations(Path(fact["bundle"]))]
    text += "" if good else f"  TOUCHED: status {status}, {refuted[:2]} {ended} {violated} {run.said()[-300:]}"
    return Result(part, f"healthy {kind} seed {seed}", good, text)


def violations(bundle: Path) -> list[str]:
    """The clauses that a bundle's subject violates, with what was measured."""
    clauses = json.loads((bundle / "record.json").read_text())["clauses"]
    return [f"{clause['id']}: {clause['value']}" for clause in clauses if clause["outcome"] == "FAIL"]


def killed(work: Path, number: int) -> Result:
    """Kill a watcher or its job at a random moment."""
    chance = random.Random(number)
    victim = chance.choice(("watcher", "job"))
    defect = chance.choice(("", "nan-from-step-30", "initial-weights-saved"))
    kind, moment = "plain" if number % 5 == 0 else "numpy", chance.uniform(0.0, 6.0)
    run = begin(work, kind, f"killed-{number}", defect=defect, steps=SHORT, every=SHORT_EVERY, action="log")
    while not (jobs := run.of("job")):
        time.sleep(0.05)
    time.sleep(moment)
    watcher = run.process
    if victim == "watcher":
        watcher.kill()
        watcher.wait()
        watcher = resumed(run)
    else:
        for child in children(jobs[0]["pid"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    watcher.wait(TO_ITS_END)
    ended, refuted = run.of("ended"), {fact["check"] for fact in run.of("refuted")}
    expected = {DEFECTS[defect]} if defect and victim == "watcher" else set()
    whole = bool(ended) and (victim == "job" or ended[0]["status"] == 0)
    good = is_sound(run) and whole and expected <= refuted and (bool(defect) or not refuted)
    text = f"after {moment:.1f} s, {defect or 'healthy'}: {ended[0]['how'] if ended else '?'}, {sorted(refuted)}, "
    return Result("killed", f"{number} {victim}", good, f"{text}{len(run.of('sealed'))} sealed")


def cost(work: Path, number: int, seconds: float) -> Result:
    """Compare a watched job with one alone."""
    found = pair(work, number, seconds)
    return Result("cost", f"pair {number}", True, found.text, found.numbers)


def stages(work: Path, given: argparse.Namespace, until: float) -> Iterator[tuple[int, list[tuple[str, str, Task]]]]:
    """The tasks, in stages that run one after another, with the number of tasks at once. Each has its part and name."""

    def of_defect(part: str, kind: str, defect: str, device: str) -> tuple[str, str, Task]:
        return part, f"{kind} {defect}", partial(wasted, work, part, kind, defect, device, until)

    def of_healthy(part: str, kind: str, seed: int, device: str) -> tuple[str, str, Task]:
        return part, f"healthy {kind} seed {seed}", partial(healthy, work, part, kind, seed, device)

    alone = ("gpu-idle", "gpu-memory-creeping")
    has_gpu = bool(probe().gpus)
    busy = [defect for defect in ("silent-cpu-fallback", *GPU_DEFECTS) if defect not in alone]
    first = [of_defect("gpu", kind, defect, "cuda") for kind in KINDS for defect in busy if has_gpu]
    first += [of_healthy("gpu", kind, seed, "cuda") for kind in KINDS for seed in range(2) if has_gpu]
    first += [of_defect("wasted", kind, defect, "cpu") for kind in KINDS for defect in DEFECTS]
    first += [of_healthy("healthy", kind, seed, "cpu") for seed in range(given.repeat) for kind in TRAINERS]
    first += [("killed", str(number), partial(killed, work, number)) for number in range(given.kills)]
    yield given.jobs, first
    # How much a GPU works is known of the GPU, not of a process; in a container, so is the memory in use.
    yield given.jobs, [of_defect("gpu", kind, alone[0], "cuda") for kind in KINDS if has_gpu]
    yield 1, [of_defect("gpu", kind, alone[1], "cuda") for kind in KINDS if has_gpu]
    pairs = [("cost", f"pair {number}", partial(cost, work, number, given.seconds)) for number in range(given.pairs)]
    yield given.jobs, pairs


def commit_here() -> str:
    """The commit of this tree, with CHANGED behind it if files that it has differ."""
    words = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", f"--dirty={CHANGED}"]
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run_stages(work: Path, given: argparse.Namespace) -> tuple[list[Result], int]:
    """Run what is asked for and has no result of this commit yet, until the budget is used.

    Returns the results of all that is asked for, and the number of tasks not run.
    """
    commit = given.commit or commit_here()
    earlier: dict[tuple[str, str], Result] = {}
    for line in given.results.read_text().splitlines() if given.results.exists() else ():
        document = json.loads(line)
        result = Result(**{name: value for name, value in document.items() if name != "commit"})
        if document.get("commit") == commit and not commit.endswith(CHANGED):
            earlier[result.part, result.name.split()[0] if result.part == "killed" else result.name] = result
    results: list[Result] = []
    left, until = 0, time.monotonic() + given.budget

    def guarded(part: str, name: str, task: Task) -> Result | None:
        if time.monotonic() > until:
            return None
        try:
            return task()
        except Exception as error:
            return Result(part, name, False, f"{type(error).__name__}: {error}")

    for jobs, tasks in stages(work, given, until):
        selected = [task for task in tasks if given.only in (None, task[0]) and given.match in task[1]]
        results += [earlier[run[:2]] for run in selected if run[:2] in earlier]
        chosen = [run for run in selected if run[:2] not in earlier]
        with ThreadPoolExecutor(jobs) as pool, given.results.open("a") as file:
            for future in as_completed([pool.submit(guarded, *run) for run in chosen]):
                found = future.result()
                if found is None:
                    left += 1
                    continue
                results.append(found)
                file.write(json.dumps({"commit": commit, **asdict(found)}) + "\n")
                file.flush()
                mark = {True: "ok", False: "BAD", None: "--"}[found.good]
                print(f"{mark:<4}{found.part:<8} {found.name:<40} {found.told}", flush=True)
    return results, left


def sums(results: Sequence[Result], left: int) -> Iterator[str]:
    """The lines at the end."""
    for part in ("wasted", "gpu", "healthy", "killed", "cost"):
        mine = [result for result in results if result.part == part]
        if not mine:
            continue
        bad, absent = [run.name for run in mine if run.good is False], [run.name for run in mine if run.good is None]
        line = f"{part}: {len(mine)} runs, {sum(result.good is True for result in mine)} as they should be"
        line += f"; bad: {', '.join(bad) or 'none'}" + (f"; cannot be run here: {', '.join(absent)}" if absent else "")
        if shares := [result.numbers[0] for result in mine if result.numbers and part in ("wasted", "gpu")]:
            line += f"; share of the run at the refutation: median {median(shares):.2%}, largest {max(shares):.2%}"
        yield line
        if part == "cost":
            yield from compared([result.numbers for result in mine if result.numbers])
    if left:
        yield f"{left} tasks were not begun within the budget; the same command runs them"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("wasted", "gpu", "healthy", "killed", "cost"))
    parser.add_argument("--match", default="", help="Only what has this in its name.")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) - 2))
    parser.add_argument("--budget", type=float, default=1e9, help="Seconds after which nothing more is begun.")
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=30.0, help="About how long a job of a pair takes.")
    parser.add_argument("--commit", help="What the results are of, where git does not tell.")
    parser.add_argument("--results", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wasted-runs-") as folder:
        work = Path(folder)
        os.environ["HARNESS_CACHE_DIR"] = str(work / "cache")
        prepare(work)
        results, left = run_stages(work, given)
    print(*sums(results, left), sep="\n")
    sys.exit(0 if not left and all(result.good is not False for result in results) else 1)


if __name__ == "__main__":
    main()
