"""Jobs of `benchmarks.wasted_trainers` under a watcher: their trainers' files, their command lines, their facts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.wasted_gpu import ON_CPU
from benchmarks.wasted_trainers import RATE

ROOT = Path(__file__).parents[1]
STEPS, EVERY = 30_000, 300
SHORT, SHORT_EVERY = 400, 50
BOUNDS = {
    "settle_seconds": 0.3, "late_seconds": 2.0, "stall_seconds": 2.5, "collapse_seconds": 2.0, "creep_seconds": 1.0,
    "creep_windows": 4, "idle_seconds": 5.0, "learn_by": 200,
}  # fmt: skip

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
_QUOTED = r"[^',\}]+"  # transformers 5 prints text, and 4 numbers


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
        rf"pattern = '''^\{{'loss': '?(?P<loss>{_QUOTED})'?, 'grad_norm': '?(?P<grad_norm>{_QUOTED})'?, "
        rf"'learning_rate': '?(?P<learning_rate>{_QUOTED})'?, 'batch': (?P<batch>\d+), 'total': (?P<total>\d+), "
        rf"'epoch': '?(?P<epoch>{_QUOTED})'''" + "\n",
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

    def said(self) -> str:
        """What the watcher printed."""
        return (self.place / "watch.log").read_text()

    def end(self) -> None:
        """End the watcher, and the job if it still runs."""
        self.process.kill()
        self.process.wait()
        for fact in self.of("job"):
            if self.of("ended") or not Path(f"/proc/{fact['pid']}").exists():
                continue
            for child in (*children(fact["pid"]), fact["pid"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The facts of a kind."""
        return [fact for fact in self.facts() if fact["fact"] == kind]


def job_words(
    kind: str, work: Path, out: Path, steps: int, every: int, seed: int, defect: str, device: str = "cpu"
) -> list[str]:
    """The command line of a job."""
    weights, rate = f"{work}/weights", f"{rate_of(defect)}"
    if kind == "transformers":
        on_cpu = device == "cpu" or defect in ON_CPU
        return [sys.executable, "-m", "benchmarks.wasted_transformers", "--weights", weights, "--output_dir", f"{out}",
                "--max_steps", f"{steps}", "--logging_steps", "1", "--save_strategy", "steps", "--save_steps",
                f"{every}", "--report_to", "none", "--disable_tqdm", "True", "--use_cpu", f"{on_cpu}",
                "--learning_rate", rate, "--per_device_train_batch_size", "16", "--seed", f"{seed}", "--device",
                device, "--defect", defect]  # fmt: skip
    return [sys.executable, "-m", "benchmarks.wasted_trainers", kind, "--weights", weights, "--out", f"{out}",
            "--steps", f"{steps}", "--every", f"{every}", "--seed", f"{seed}", "--rate", rate, "--device", device,
            "--defect", defect]  # fmt: skip


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
    device: str = "cpu",
    more: Sequence[str] = (),
    before: Sequence[str] = (),
    pace: str | None = None,
) -> Run:
    """Start a job under a watcher.

    Args:
        device: where the job trains unless its defect is that it does not.
        more: further options of the watcher.
        before: words before the watcher's command line.
        pace: the seconds that a step waits; None for those of this process.
    """
    place = work / name
    place.mkdir(parents=True)
    out, weights = place / "out", work / "weights"
    if defect == "teacher-as-student" and kind == "accumulating":  # its loss has no teacher: its file names one
        weights = place / "weights"
        shutil.copytree(work / "weights" / kind, weights / kind)
        shutil.copyfile(weights / kind / "initial.safetensors", weights / kind / "teacher.safetensors")
    if defect == "disk-nearly-full":
        before = small_disk(out, work / "weights" / kind)
    requested = "cuda" if "cpu-fallback" in defect else device
    given = {**BOUNDS, "steps": steps, "learning_rate": rate_of(defect), "checkpoint_every": every,
             "optimizer": "adamw", "schedule": SCHEDULES.get(kind, "constant"), "weights": weights,
             "device": requested}  # fmt: skip
    words = [*before, sys.executable, "-m", "harness", "watch", f"{work}/{kind}.toml", "--output", f"{out}", "--state",
             f"{place}/state", "--evidence", f"{place}/evidence", "--every", "0.2s", "--grace", "5s",
             "--on-refute", action, "--issue", "PMAT-697", *(["--record"] if device == "cuda" else [])]  # fmt: skip
    for key, value in given.items():
        words += ["-P", f"{key}={value}"]
    command = [*words, *more, "--", *job_words(kind, work, out, steps, every, seed, defect, device)]
    environment = {**os.environ, **({} if pace is None else {"WASTED_PACE": pace})}
    with (place / "watch.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=log, text=True, env=environment)
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


def small_disk(place: Path, weights: Path) -> list[str]:
    """The words with which a command sees a disk there that has room for the first checkpoint and not for the next."""
    place.mkdir()
    [first] = (*weights.glob("initial.safetensors"), *weights.glob("initial/model.safetensors"))
    mount = 'mount -t tmpfs -o size=$0 tmpfs "$1" && shift && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, f"{int(1.6 * first.stat().st_size)}",
            f"{place}"]  # fmt: skip


def children(pid: int) -> list[int]:
    """The children of a process."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def prepare(work: Path) -> None:
    """Write the trainers' files, and the weights before the first step."""
    for kind, content in TRAINERS.items():
        (work / f"{kind}.toml").write_text(content.replace("steps = 100\n", 'weights = ""\n'))
    words = [sys.executable, "-m", "benchmarks.wasted_trainers", "prepare", "--weights", f"{work}/weights"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
