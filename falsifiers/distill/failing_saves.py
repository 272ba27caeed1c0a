"""F-DISTILL-CKPT-FAILSOFT-001: a run reports a failed save and continues; a failed export makes the run fail."""

import logging
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falsifiers.distill.measuring.saved_state import is_whole, saved, unlike
from falsifiers.distill.measuring.weight_comparison import UNFINISHED
from falsifiers.distill.measuring.weight_files import weight_files
from falsifiers.distill.running.determinism import be_deterministic
from falsifiers.distill.running.forked_run import ForkedRun, Report
from falsifiers.distill.running.further_subjects import directory_of, further_subject
from falsifiers.distill.running.training import train
from falsifiers.distill.subject import Checkpointing
from harness import Trial, for_external, not_observable
from harness.base.beneath import Beneath
from harness.base.removal import remove

_SMALLEST_FILE = 16_384  # bytes: log lines fit below this limit, weights do not
_ABOUT_A_SAVE = re.compile(r"(?i)ckpt|checkpoint|sav")
_SPEAKS_OF_FAILURE = re.compile(r"(?i)fail|error|could|cannot|can't|unable|not |too large")


@dataclass(frozen=True)
class _Fault:
    """A real fault of the file system, with the functions that begin and end it. It begins after a run's first step."""

    name: str
    inflict: Callable[[Path], None]
    relieve: Callable[[Path], None]


def _stand_in_the_way(directory: Path) -> None:
    """Put a file in the place of the directory. Then not even root can create the directory or a file in it."""
    remove(Beneath(directory.parent, directory.name))
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("a file where a directory belongs\n")


def _limit_files(directory: Path) -> None:
    """Make every write end with EFBIG in the middle of the file, as a full disk ends it with ENOSPC."""
    del directory
    resource.setrlimit(resource.RLIMIT_FSIZE, (_SMALLEST_FILE, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _lift_limit(directory: Path) -> None:
    del directory
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


_FAULTS = (
    _Fault("file-in-place-of-directory", _stand_in_the_way, lambda directory: directory.unlink(missing_ok=True)),
    _Fault("file-size-limit", _limit_files, _lift_limit),
)


@dataclass
class _Findings:
    """What was wrong in all runs of the trial."""

    steps_short: list[int] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    unlogged: list[int] = field(default_factory=list)
    miscounted: list[int] = field(default_factory=list)
    unsaved_afterwards: list[str] = field(default_factory=list)
    different_afterwards: list[str] = field(default_factory=list)
    unequal: list[int] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)
    exit_codes_after_recovery: list[int] = field(default_factory=list)
    exit_codes_without_export: list[int] = field(default_factory=list)
    reported: list[tuple[int, float]] = field(default_factory=list)
    """The reported steps and losses of all runs under a fault; not measured."""


# Another process inherits limits only at its start, and may print a step late.
@for_external(not_observable("no fault of the file system can be inflicted between two steps of another process"))
def falsify(trial: Trial[Checkpointing]) -> None:
    """Inflict each fault on two runs: in one it ends after half of the steps, in the other never.

    Then the first save of one run, and the last save of another, fail with an error that is not of the disk.
    """
    seen = _Findings()
    weight_files(trial.subject)  # a subject with its own file names shows its directory only on request
    be_deterministic()
    for fault in _FAULTS:
        _passing(trial, fault, seen)
        _staying(trial, fault, seen)
    every, steps = trial.parameters["checkpoint_every"], trial.parameters["steps"]
    for step in sorted({every, steps // every * every}):
        _broken(trial, step, seen)
    training = train(trial)
    with trial.subject_fault():
        in_peace = _saved(trial, Path(trial.subject.directory))
    for fault in _FAULTS:
        _compare(f"{fault.name}-passing", trial, in_peace, seen)
    expected = dict(enumerate(training.run.losses, start=1))
    seen.unequal = sorted({step for step, loss in seen.reported if loss != expected.get(step)})
    trial.measure(**{name: value for name, value in vars(seen).items() if name != "reported"})


def _passing(trial: Trial[Checkpointing], fault: _Fault, seen: _Findings) -> None:
    """The fault ends after half of the steps. Saves that were due before then fail; later checkpoints must exist."""
    every, steps = trial.parameters["checkpoint_every"], trial.parameters["steps"]
    half = steps // 2
    name = f"{fault.name}-passing"
    child, directory = _run(trial, fault, name, relief_after=half)
    seen.reported += child.steps
    files = _saved(trial, directory)
    due = range(every, steps + 1, every)
    failed = [step for step in due if step not in files]
    seen.exit_codes_after_recovery.append(child.exit_code)
    seen.steps_short.append(steps - len(child.steps))
    seen.failures.append(len(failed))
    seen.unlogged.append(max(0, len(failed) - _lines_about_failures(child.log)))
    seen.miscounted.append(-1 if child.answer is None else child.answer - len(failed))
    seen.unsaved_afterwards += [f"{name}: step {step}" for step in failed if step > half]
    _look_over(name, directory, seen)


def _compare(name: str, trial: Trial[Checkpointing], in_peace: dict[int, Path], seen: _Findings) -> None:
    """Every tensor that was saved after the fault equals the tensor of the run without a fault."""
    for step, path in _saved(trial, directory_of(trial, name)).items():
        if step <= trial.parameters["steps"] // 2:
            continue
        if step not in in_peace or unlike(weight_files(trial.subject), path, in_peace[step]):
            seen.different_afterwards.append(f"{name}: step {step}")


def _staying(trial: Trial[Checkpointing], fault: _Fault, seen: _Findings) -> None:
    """The fault never ends. The run makes all steps, its export fails, and it must not end as a success."""
    name = f"{fault.name}-staying"
    child, directory = _run(trial, fault, name, relief_after=None)
    seen.reported += child.steps
    seen.exit_codes_without_export.append(child.exit_code)
    seen.steps_short.append(trial.parameters["steps"] - len(child.steps))
    _look_over(name, directory, seen)


def _broken(trial: Trial[Checkpointing], step: int, seen: _Findings) -> None:
    """The save of one step fails with an error that is not of the disk. The run must fail or count the failed save."""
    name = f"broken-save-{step}"
    directory = directory_of(trial, name)
    broken = weight_files(trial.subject).name(step)

    def work(report: Report) -> int:
        _break_rename_to(directory, broken)
        return further_subject(trial, name).distill(on_step=lambda step, **values: None).failed_saves

    child = ForkedRun(work, trial.workspace / f"{name}.log")
    with trial.subject_fault():
        child.finish()
    if child.exit_code == 0 and step not in _saved(trial, directory) and not child.answer:
        seen.unheard.append(f"step {step}")


def _break_rename_to(directory: Path, name: str) -> None:
    """Make the first rename to a checkpoint of this name fail in this process."""
    renamed: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and not renamed:
            path = Path(os.fsdecode(arguments[1]))
            if path.parent == directory and name in (path.name, path.stem):
                renamed.append(path.name)
                raise RuntimeError("an error that is not the disk's")

    sys.addaudithook(hook)  # the patch stays; the process is forked for one run


def _run(trial: Trial[Checkpointing], fault: _Fault, name: str, relief_after: int | None) -> tuple[ForkedRun, Path]:
    """Run once under the fault; the answer is the number of failed saves that the run reports."""
    directory = directory_of(trial, name)

    def work(report: Report) -> int:
        logging.raiseExceptions = False  # a message that cannot be formatted reports no failure
        subject = further_subject(trial, name)

        def on_step(step: int, **values: float) -> None:
            report(step, values["loss"])
            if step == 1:
                fault.inflict(directory)
            if step == relief_after:
                time.sleep(trial.parameters["settle_seconds"])  # a save in the background fails first
                fault.relieve(directory)

        return subject.distill(on_step=on_step).failed_saves

    child = ForkedRun(work, trial.workspace / f"{name}.log")
    with trial.subject_fault():
        child.finish()
    return child, directory


def _saved(trial: Trial[Checkpointing], directory: Path) -> dict[int, Path]:
    """The checkpoints in a directory, by step in order."""
    return saved(weight_files(trial.subject), directory, trial.parameters["steps"])


def _lines_about_failures(log: str) -> int:
    return sum(bool(_ABOUT_A_SAVE.search(line) and _SPEAKS_OF_FAILURE.search(line)) for line in log.splitlines())


def _look_over(name: str, directory: Path, seen: _Findings) -> None:
    """Record torn files under a final name, and unfinished files that were left behind."""
    if not directory.is_dir():
        return
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        relative = path.relative_to(directory)
        if relative.parts[0].startswith(".") or path.suffix in UNFINISHED:
            seen.left_behind.append(f"{name}: {relative}")
        elif not is_whole(path):
            seen.torn.append(f"{name}: {path.name}")
