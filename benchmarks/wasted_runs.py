"""How soon `harness watch` refutes a wasted run, and whether it leaves healthy ones alone.

    python -m benchmarks.wasted_runs [--only wasted|healthy|killed|cost] [--repeat 6] [--kills 30]

1. wasted: each defect of `benchmarks.wasted_trainers` in three trainers, which are asked for 20,000 steps. Printed is
   the first refutation by the check that the defect violates, and its second as a share of the run's time.
2. healthy: runs of five trainers to their end, with `--on-refute kill` and the same bounds.
3. killed: SIGKILL for the watcher or the job at a random moment; a watcher is started again. The evidence must be
   sound.
4. cost: the processor time of the watcher over that of the job, and the job's wall time with and without it.

The bounds are smaller than the defaults by the factor by which these runs are shorter than real ones.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.wasted_trainers import AT, DEFECTS, PACE, RATE

ROOT = Path(__file__).parents[1]
STEPS, EVERY = 20_000, 300
SHORT, SHORT_EVERY = 400, 50
BOUNDS = {
    "settle_seconds": 0.3, "late_seconds": 2.0, "stall_seconds": 2.5, "collapse_seconds": 2.0, "creep_seconds": 1.0,
    "creep_windows": 4, "idle_seconds": 5.0, "learn_by": 200,
}  # fmt: skip
SEEN_BY = {
    "weights-never-move": {"checkpoints_unmoved", "losses_never_fall"},
    "initial-weights-saved": {"checkpoints_unmoved", "losses_never_fall"},
    "teacher-as-student": {"teacher_is_student", "losses_constant"},
    "diverging": {"losses_rise", "checkpoints_off_rate"},
    "unlearnable-batch": {"losses_rise", "losses_never_fall"},
}
"""Defects that more than one check may find first."""
KINDS = ("plain", "accumulating", "transformers")
NOT_IN = {
    "transformers": {"wrong-number-of-steps"},  # its log has no total, so it shows at the end alone
}

_HEAD = 'name = "{kind}"\n[parameters]\nsteps = 100\n[command]\nline = ["true"]\n[log]\nfiles = ["*.log"]\n'
_RAN = "[[log.line]]\nevent = \"ran\"\npattern = '^device: (?P<device>\\w+)'\n"
_SUM = "[[log.line]]\nevent = \"summary\"\npattern = '^(?P<steps>\\d+) steps made'\n"
_STEP = '[[log.line]]\nevent = "step"\n'
_FILES = """[files]
export = "{{output}}/model.safetensors"
checkpoints = "{{output}}/{glob}"
step = '{step}'
initial = "{{weights}}/{initial}"
[models]
teacher = "{{weights}}/{teacher}"
"""
_NUMBER = r"[^ ,\]}]+"
_QUOTED = r"[^']+"


def _file(kind: str, step: str, glob: str, name: str, weights: str = "safetensors") -> str:
    suffix = f".{weights}" if weights else ""
    files = _FILES.format(glob=glob, step=name, initial=f"{kind}/initial{suffix}", teacher=f"{kind}/teacher{suffix}")
    head = _HEAD.format(kind=kind) + ("every = 1\n" if kind == "transformers" else "")
    return head + _RAN + _SUM + _STEP + step + files.replace("[parameters]", "")


TRAINERS = {
    "plain": _file(
        "plain",
        rf"pattern = '^step (?P<step>\d+)/(?P<total>\d+) loss (?P<loss>{_NUMBER}) lr (?P<learning_rate>{_NUMBER}) "
        rf"grad_norm (?P<grad_norm>{_NUMBER}) batch (?P<batch>\d+) epoch (?P<epoch>{_NUMBER})'" + "\n",
        "ckpt-step-*.safetensors",
        r"^ckpt-step-(?P<step>\d+)\.safetensors$",
    ),
    "accumulating": _file(
        "accumulating",
        'json = {step = "trainer.step", loss = "trainer.loss", learning_rate = "trainer.lr", total = "trainer.total", '
        'grad_norm = "trainer.grad_norm", batch = "trainer.batch", epoch = "trainer.epoch"}\n',
        "step_*.pt",
        r"^step_(?P<step>\d+)\.pt$",
    ),
    "transformers": _file(
        "transformers",
        rf"pattern = '''^\{{'loss': '(?P<loss>{_QUOTED})', 'grad_norm': '(?P<grad_norm>{_QUOTED})', 'learning_rate': "
        rf"'(?P<learning_rate>{_QUOTED})', 'batch': (?P<batch>\d+), 'epoch': '(?P<epoch>{_QUOTED})''''" + "\n",
        "checkpoint-*/model.safetensors",
        r"^checkpoint-(?P<step>\d+)/",
        "",
    ),
    "recurrent": _file(
        "recurrent",
        rf"pattern = '(?P<step>\d+)/(?P<total>\d+) \[loss=(?P<loss>{_NUMBER}), lr=(?P<learning_rate>{_NUMBER})\]'"
        + "\n",
        "ckpt-step-*.safetensors",
        r"^ckpt-step-(?P<step>\d+)\.safetensors$",
    ),
    "numpy": _file(
        "numpy",
        rf"pattern = 'iter=(?P<step>\d+) nll=(?P<loss>{_NUMBER})'" + "\n",
        "[0-9]*.safetensors",
        r"^(?P<step>\d+)\.safetensors$",
    ),
}
SCHEDULES = {"recurrent": "linear"}


@dataclass
class Run:
    """One job under a watcher."""

    kind: str
    place: Path
    state: Path
    evidence: Path
    process: subprocess.Popen[str]

    def facts(self) -> list[dict[str, Any]]:
        """The facts so far."""
        with contextlib.suppress(OSError):
            return [json.loads(line) for line in (self.state / "facts.jsonl").read_text().splitlines(keepends=True)
                    if line.endswith("\n")]  # fmt: skip
        return []

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The facts of a kind."""
        return [fact for fact in self.facts() if fact["fact"] == kind]


def job_words(kind: str, work: Path, out: Path, steps: int, every: int, seed: int, defect: str) -> list[str]:
    """The command line of a job."""
    if kind == "transformers":
        return [sys.executable, "-m", "benchmarks.wasted_transformers", "--weights", f"{work}/weights", "--output_dir",
                f"{out}", "--max_steps", f"{steps}", "--logging_steps", "1", "--save_strategy", "steps", "--save_steps",
                f"{every}", "--report_to", "none", "--disable_tqdm", "True", "--use_cpu", "True", "--learning_rate",
                f"{rate_of(defect)}", "--per_device_train_batch_size", "16", "--seed", f"{seed}",
                "--defect", defect]  # fmt: skip
    return [sys.executable, "-m", "benchmarks.wasted_trainers", kind, "--weights", f"{work}/weights", "--out", f"{out}",
            "--steps", f"{steps}", "--every", f"{every}", "--seed", f"{seed}", "--rate",
            f"{rate_of(defect)}", "--defect", defect]  # fmt: skip


def rate_of(defect: str) -> float:
    """The learning rate that is asked for: 1.5e-5 where the default of 0.001 acts, as in FALSIFY-DBH, times 3."""
    return 4.5e-5 if defect == "default-rate" else RATE


def begin(
    work: Path,
    kind: str,
    name: str,
    *,
    defect: str = "",
    steps: int = STEPS,
    every: int = EVERY,
    seed: int = 0,
    action: str = "kill",
    out: Path | None = None,
    more: tuple[str, ...] = (),
) -> Run:
    """Start a job under a watcher."""
    place = work / name
    place.mkdir(parents=True)
    out = out or place / "out"
    given = {**BOUNDS, "steps": steps, "learning_rate": rate_of(defect), "checkpoint_every": every,
             "optimizer": "adamw", "schedule": SCHEDULES.get(kind, "constant"), "weights": work / "weights",
             "device": "cuda" if "cpu-fallback" in defect else "cpu"}  # fmt: skip
    words = [sys.executable, "-m", "harness", "watch", f"{work}/{kind}.toml", "--output", f"{out}", "--state",
             f"{place}/state", "--evidence", f"{place}/evidence", "--every", "0.2s", "--grace", "5s",
             "--on-refute", action, "--issue", "PMAT-697"]  # fmt: skip
    for key, value in given.items():
        words += ["-P", f"{key}={value}"]
    command = [*words, *more, "--", *job_words(kind, work, out, steps, every, seed, defect)]
    log = (place / "watch.log").open("w")
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log, text=True)
    return Run(kind, place, place / "state", place / "evidence", process)


def resumed(run: Run) -> subprocess.Popen[str]:
    """Start another watcher of a job."""
    log = (run.place / "watch.log").open("a")
    words = [sys.executable, "-m", "harness", "watch", "--resume", str(run.state)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log, text=True)


def is_sound(run: Run) -> bool:
    """Whether `harness verify` accepts the evidence, if there is any."""
    if not run.evidence.exists():
        return True
    words = [sys.executable, "-m", "harness", "verify", str(run.evidence)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    return ", 0 unsound" in done.stdout and not [*run.evidence.rglob("*.part")]


def wasted(work: Path, only: str) -> bool:
    """Refute each defect in three trainers."""
    print(f"{'trainer':<13} {'defect':<27} {'check':<23} {'step':>6} {'second':>7} {'share':>7}  late by")
    shares, missed = [], []
    for kind in KINDS:
        for defect in DEFECTS:
            if defect in NOT_IN.get(kind, ()) or (only and only != defect):
                continue
            if defect == "teacher-as-student":  # for the loop whose loss has no teacher: its file names it
                copy_teacher(work, "accumulating")
            out = small_disk(work, kind) if defect == "disk-nearly-full" else None
            if defect == "disk-nearly-full" and out is None:
                print(f"{kind:<13} {defect:<27} no small disk can be mounted here")
                continue
            run = begin(work, kind, f"{kind}-{defect}", defect=defect, out=out)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(150)
            run.process.kill()
            found = of_check(run, SEEN_BY.get(defect, {DEFECTS[defect]}))
            if defect == "teacher-as-student":
                prepare(work)
            if out is not None:
                subprocess.run(["umount", str(out)], check=False)
            if found is None:
                missed.append(f"{kind} {defect}")
                told = Counter(one["check"] for one in run.of("refuted"))
                print(f"{kind:<13} {defect:<27} MISSED; refuted {dict(told)}")
                continue
            share, late = share_of(run, defect, found)
            shares.append(share)
            sound = "" if is_sound(run) else "  UNSOUND"
            print(f"{kind:<13} {defect:<27} {found['check']:<23} {found['step']:>6} {found['at']:>7.1f} {share:>7.2%}  "
                  f"{late}{sound}", flush=True)  # fmt: skip
    if shares:
        print(f"{len(shares)} refuted, {len(missed)} missed: {', '.join(missed) or 'none'}; share of the run: median "
              f"{median(shares):.2%}, largest {max(shares):.2%}")  # fmt: skip
    return not missed and max(shares) <= 0.05


def of_check(run: Run, checks: set[str]) -> dict[str, Any] | None:
    """The first refutation by one of these checks."""
    return next((fact for fact in run.of("refuted") if fact["check"] in checks), None)


def share_of(run: Run, defect: str, found: dict[str, Any]) -> tuple[float, str]:
    """The share of the run's time that was spent, since the defect began if it is one of time; and what led to it."""
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
    planned = first + max((last - first) / max(high - low, 1), PACE) * STEPS
    since = last if begins else 0.0
    note = f"{found['at'] - last:.1f} s after step {begins}" if begins else ""
    if found["check"].startswith("checkpoints_"):
        note = "at its first checkpoint" if found["step"] == EVERY else "at its second checkpoint"
    return (found["at"] - since) / planned, note


def copy_teacher(work: Path, kind: str) -> None:
    """Put a copy of the student in place of a teacher."""
    shutil.copyfile(work / "weights" / kind / "initial.safetensors", work / "weights" / kind / "teacher.safetensors")


def small_disk(work: Path, kind: str) -> Path | None:
    """A disk that has room for the first checkpoint and not for the next."""
    place = work / "small-disk"
    place.mkdir(exist_ok=True)
    size = sum(path.stat().st_size for path in (work / "weights" / kind).glob("**/*initial*.safetensors"))
    size = size or (work / "weights" / kind / "initial" / "model.safetensors").stat().st_size
    size = int(1.6 * size)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    return place if done.returncode == 0 else None


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


def children(pid: int) -> list[int]:
    """The children of a process."""
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def cost(work: Path, repeat: int) -> bool:
    """The processor time of a watcher with its default interval, and the job's wall time with and without it."""
    arms: dict[str, list[float]] = {"alone": [], "watched": []}
    used: list[float] = []
    for number in range(repeat):
        out = work / f"cost-{number}"
        began = time.monotonic()
        subprocess.run(
            job_words("plain", work, out, 4 * SHORT, 500, 0, ""), cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        arms["alone"].append(time.monotonic() - began)
        run = begin(work, "plain", f"cost-watched-{number}", steps=4 * SHORT, every=500, more=("--every", "2s"))
        run.process.wait()
        arms["watched"].append(run.of("ended")[0]["at"])
        samples = run.of("usage")
        spent = samples[-1]["watcher_seconds"] - samples[0]["watcher_seconds"]
        used.append(spent / (samples[-1]["at"] - samples[0]["at"]))
    alone, watched = median(arms["alone"]), median(arms["watched"])
    print(
        f"job alone {alone:.2f} s, watched {watched:.2f} s ({watched / alone - 1:+.1%}); after its start, the "
        f"watcher used {median(used):.2%} of a processor"
    )
    return True


def prepare(work: Path) -> None:
    """Write the weights before the first step."""
    words = [sys.executable, "-m", "benchmarks.wasted_trainers", "prepare", "--weights", f"{work}/weights"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("wasted", "healthy", "killed", "cost"))
    parser.add_argument("--defect", default="", choices=("", *DEFECTS))
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--keep", type=Path, help="Keep the runs in this folder.")
    given = parser.parse_args()
    work = given.keep or Path(tempfile.mkdtemp(prefix="wasted-runs-"))
    work.mkdir(parents=True, exist_ok=True)
    os.environ["HARNESS_CACHE_DIR"] = str(work / "cache")
    for kind, content in TRAINERS.items():
        (work / f"{kind}.toml").write_text(content.replace("steps = 100\n", 'weights = ""\n'))
    prepare(work)
    parts = {
        "wasted": lambda: wasted(work, given.defect),
        "healthy": lambda: healthy(work, given.repeat),
        "killed": lambda: killed(work, given.kills),
        "cost": lambda: cost(work, 3),
    }
    good = [part() for name, part in parts.items() if given.only in (None, name)]
    if given.keep is None:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
