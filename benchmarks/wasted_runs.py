"""How soon `harness watch` refutes a wasted run, and whether it leaves healthy ones alone.

    python -m benchmarks.wasted_runs [--only wasted|healthy|killed|cost] [--repeat 6] [--kills 30] [--pairs 5]

1. wasted: each defect of `benchmarks.wasted_trainers` in three trainers, which are asked for 20,000 steps. Printed is
   the first refutation by the check that the defect violates, and its second as a share of the run's time.
2. healthy: runs of five trainers to their end, with `--on-refute kill` and the same bounds.
3. killed: SIGKILL for the watcher or the job at a random moment; a watcher is started again. The evidence must be
   sound.
4. cost: the job's time with and without a watcher, in pairs, and the share of a processor that the watcher uses.

The bounds are smaller than the defaults by the factor by which these runs are shorter than real ones.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

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
    copy_teacher,
    is_sound,
    job_words,
    prepare,
    resumed,
    small_disk,
)
from benchmarks.wasted_trainers import AT, DEFECTS, PACE

SEEN_BY = {
    "weights-never-move": {"checkpoints_unmoved", "losses_never_fall"},
    "teacher-as-student": {"teacher_is_student", "losses_constant"},
    "diverging": {"losses_rise", "checkpoints_off_rate"},
    "unlearnable-batch": {"losses_rise", "losses_never_fall"},
}
"""Defects that two checks rightly find: weights that stand learn nothing; a teacher that is the student leaves a loss
of 0; a rate that is 100 times the stated one moves weights further than the stated one can, and then the loss rises;
labels that change under the same input let no loss fall, and may let it rise."""
KINDS = ("plain", "accumulating", "transformers")
FIRST = "at its first checkpoint"
LONG = 8000
PATIENCE = 300
"""Seconds after which a run that is not refuted is ended."""
TRIES = 2
"""A check of time says nothing while others have the processors, so a miss is tried again. The try is printed."""


def wasted(work: Path, only: str) -> bool:
    """Refute each defect in three trainers."""
    print(f"{'trainer':<13} {'defect':<27} {'check':<23} {'step':>6} {'second':>7} {'share':>7}  late by")
    shares, missed, late = [], [], []
    paces: dict[str, float] = {}
    for kind, defect in itertools.product(KINDS, DEFECTS):
        if only not in ("", defect):
            continue
        for number in range(TRIES):
            name = f"{kind:<13} {defect:<27}"
            run = refuted(work, kind, defect, f"{kind}-{defect}-{number}")
            found = None if run is None else of_check(run, SEEN_BY.get(defect, {DEFECTS[defect]}))
            if run is not None and found is not None:
                break
            told = "no small disk can be mounted here" if run is None else [one["check"] for one in run.of("refuted")]
            print(f"{name} MISSED: {told or 'nothing is refuted'}", flush=True)
        else:
            missed.append(f"{kind} {defect}")
            continue
        share, note = share_of(run, defect, found, paces)
        shares.append(share)
        if share > 0.05 and note != FIRST:
            late.append(f"{kind} {defect}")
        note += f", try {number + 1}" if number else ""
        sound = "" if is_sound(run) else "  UNSOUND"
        print(f"{name} {found['check']:<23} {found['step']:>6} {found['at']:>7.1f} {share:>7.2%}  {note}{sound}",
              flush=True)  # fmt: skip
    if shares:
        print(f"{len(shares)} refuted, {len(missed)} missed: {', '.join(missed) or 'none'}; {len(late)} later than 5 % "
              f"and the first checkpoint: {', '.join(late) or 'none'}; share of the run: median {median(shares):.2%}, "
              f"largest {max(shares):.2%}")  # fmt: skip
    return not missed and not late


def refuted(work: Path, kind: str, defect: str, name: str) -> Run | None:
    """A run with a defect, which its watcher is to end; None if it needs a small disk, and none can be mounted."""
    if defect == "teacher-as-student":  # for the loop whose loss has no teacher: its file names it
        copy_teacher(work, "accumulating")
    out = small_disk(work, kind) if defect == "disk-nearly-full" else None
    if defect == "disk-nearly-full" and out is None:
        return None
    run = begin(work, kind, name, defect=defect, out=out)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.process.wait(PATIENCE)
    run.end()
    if defect == "teacher-as-student":
        prepare(work)
    if out is not None:
        subprocess.run(["umount", str(out)], check=False)
    return run


def of_check(run: Run, checks: set[str]) -> dict[str, Any] | None:
    """The first refutation by one of these checks."""
    return next((fact for fact in run.of("refuted") if fact["check"] in checks), None)


def share_of(run: Run, defect: str, found: dict[str, Any], paces: dict[str, float]) -> tuple[float, str]:
    """The share of the run's time that was spent, since the defect began if it is one of time; and what led to it.

    Args:
        paces: the seconds of a step by trainer, as the run before took it; for a run that made too few.
    """
    facts = run.facts()
    steps = [(fact["at"], int(values["step"])) for fact in facts if fact["fact"] == "output"
             for kind, values, _ in fact["events"] if kind == "step" and "step" in values]  # fmt: skip
    if not steps:  # transformers prints no number
        count = 0
        for fact in facts:
            for kind, _, _ in fact["events"] if fact["fact"] == "output" else ():
                if kind == "step":
                    count += 1
                    steps.append((fact["at"], count))
    begins = {"hanging-loader": AT, "collapsing-throughput": 10 * AT}.get(defect, 0)
    calm = [(at, step) for at, step in steps if step <= (begins or STEPS)]
    calm = calm or [(0.0, 0)]  # refuted before its first step
    (first, low), (last, high) = calm[0], calm[-1]
    if high > low + 5:
        paces[run.kind] = max((last - first) / (high - low), PACE)
    planned = first + paces.get(run.kind, PACE) * STEPS
    since = last if begins else 0.0
    note = f"{found['at'] - last:.1f} s after step {begins}" if begins else ""
    if found["check"].startswith("checkpoints_"):
        note = FIRST if found["step"] == EVERY else "at its second checkpoint"
    return (found["at"] - since) / planned, note


def healthy(work: Path, repeat: int) -> bool:
    """Watch healthy runs to their end."""
    touched = 0
    for seed in range(repeat):
        for kind in TRAINERS:
            run = begin(work, kind, f"healthy-{kind}-{seed}", steps=SHORT, every=SHORT_EVERY, seed=seed)
            status = run.process.wait(300)
            ended, refuted = run.of("ended"), run.of("refuted")
            is_left = status == 0 and not refuted and bool(ended) and ended[0]["status"] == 0
            touched += not is_left
            verdicts = [fact["verdict"] for fact in run.of("sealed")]
            why = "" if is_left else f"  TOUCHED: {refuted[:2]} {ended}"
            took = ended[0]["at"] if ended else 0.0
            print(f"healthy {kind:<13} seed {seed}: {took:.1f} s, {', '.join(verdicts)}{why}", flush=True)
    print(f"{repeat * len(TRAINERS)} healthy runs of {len(TRAINERS)} trainers, {touched} touched")
    return touched == 0


def killed(work: Path, kills: int) -> bool:
    """Kill a watcher or its job at random moments."""
    chance = random.Random(7)
    bad = 0
    for number in range(kills):
        victim = chance.choice(("watcher", "job"))
        defect = chance.choice(("", "nan-from-step-30", "initial-weights-saved"))
        kind = "plain" if number % 5 == 0 else "numpy"
        run = begin(work, kind, f"killed-{number}", defect=defect, steps=SHORT, every=SHORT_EVERY, action="log")
        while not (jobs := run.of("job")):
            time.sleep(0.05)
        moment = chance.uniform(0.0, 6.0)
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
        watcher.wait(120)
        ended, refuted = run.of("ended"), {fact["check"] for fact in run.of("refuted")}
        expected = {DEFECTS[defect]} if defect and victim == "watcher" else set()
        whole = bool(ended) and (victim == "job" or ended[0]["status"] == 0)
        good = is_sound(run) and whole and expected <= refuted and (bool(defect) or not refuted)
        bad += not good
        how = ended[0]["how"] if ended else "?"
        print(f"kill {number:>2}: {victim} after {moment:.1f} s, {defect or 'healthy'}: {how}, "
              f"{sorted(refuted)}, {len(run.of('sealed'))} sealed{'' if good else '  BAD'}", flush=True)  # fmt: skip
    print(f"{kills} kills, {bad} bad")
    return bad == 0


def cost(work: Path, pairs: int) -> bool:
    """What a watcher with its default interval costs a job that uses a whole processor.

    A job tells its time from its first to its last step, and that of the processor. Runs alone and watched take turns.
    """
    os.environ["WASTED_PACE"] = "0"
    used, walls, processors = [], [], []
    for number in range(pairs):
        words = job_words("plain", work, work / f"cost-{number}", LONG, 2000, 0, "")
        arms = {}
        for arm in ("alone", "watched") if number % 2 else ("watched", "alone"):
            if arm == "alone":
                arms[arm] = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
                continue
            run = begin(
                work, "plain", f"cost-watched-{number}", steps=LONG, every=2000, action="log", more=("--every", "2s")
            )
            run.process.wait()
            arms[arm] = (run.state / "output.log").read_text()
            samples = run.of("usage")
            spent = samples[-1]["watcher_seconds"] - samples[0]["watcher_seconds"]
            used.append(spent / (samples[-1]["at"] - samples[0]["at"]))
        told = {arm: re.findall(r"made in ([0-9.]+) s, ([0-9.]+) s", text)[-1] for arm, text in arms.items()}
        walls.append(float(told["watched"][0]) / float(told["alone"][0]))
        processors.append(float(told["watched"][1]) / float(told["alone"][1]))
        (alone, _), (watched, _) = told["alone"], told["watched"]
        print(f"pair {number}: alone {alone} s, watched {watched} s ({walls[-1] - 1:+.1%}), of the processor "
              f"{processors[-1] - 1:+.1%}; the watcher used {used[-1]:.2%} of a processor", flush=True)  # fmt: skip
    wall, processor = (f"{median(one) - 1:+.1%} ({min(one) - 1:+.1%} to {max(one) - 1:+.1%})"
                       for one in (walls, processors))  # fmt: skip
    print(f"{pairs} pairs: the watched job took {wall} of the time alone, {processor} of the processor; the watcher "
          f"used {median(used):.2%} of a processor ({min(used):.2%} to {max(used):.2%})")  # fmt: skip
    return median(used) < 0.01


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("wasted", "healthy", "killed", "cost"))
    parser.add_argument("--defect", default="", choices=("", *DEFECTS))
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="Keep the runs in this folder.")
    given = parser.parse_args()
    work = given.keep or Path(tempfile.mkdtemp(prefix="wasted-runs-"))
    work.mkdir(parents=True, exist_ok=True)
    os.environ["HARNESS_CACHE_DIR"] = str(work / "cache")
    prepare(work)
    parts = {
        "wasted": lambda: wasted(work, given.defect),
        "healthy": lambda: healthy(work, given.repeat),
        "killed": lambda: killed(work, given.kills),
        "cost": lambda: cost(work, given.pairs),
    }
    good = [part() for name, part in parts.items() if given.only in (None, name)]
    if given.keep is None:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
