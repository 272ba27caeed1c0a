"""F-DISTILL-CKPT-PERIOD-001: every N steps there is a checkpoint, under its name, with the weights of that step."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from falsifiers.distill.another import another
from falsifiers.distill.inspection import UNFINISHED, inspect_export, snapshot
from falsifiers.distill.subject import Checkpointing, Run
from falsifiers.distill.watch import StepWatch, read_back
from harness import NotShown, Trial

__all__ = ["falsify"]

_DEFAULT = 5000  # of SPEC-DISTILL-001, where no distance is given (PR #1856)


@dataclass
class _Findings:
    """What was wrong, in words, over all runs of a trial."""

    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    misreported: list[str] = field(default_factory=list)
    matched: int = 0
    runs: int = 0
    """How many runs were examined."""
    hidden: dict[str, str] = field(default_factory=dict)
    """Of these by name, that the subject does not show them, and why."""


def falsify(trial: Trial[Checkpointing]) -> None:
    """Train with one distance after the other, none at all among them; compare every file with what we saw then.

    The subject's directory does not exist before a run, nor does the one above it.
    """
    seen = _Findings()
    with trial.where_shown():
        _examine(trial, trial.subject, trial.parameters["checkpoint_every"], seen)
        for every in trial.parameters["periods"]:
            with trial.subject_fault():
                subject = another(trial, f"every-{every}/new", checkpoint_every=every)
            _examine(trial, subject, every, seen)
        with trial.subject_fault():
            subject = another(
                trial, "default/new", without=("checkpoint_every",), steps=trial.parameters["steps_without_period"]
            )
        _examine(trial, subject, _DEFAULT, seen)
    if not seen.runs:
        return
    trial.measure(missing=seen.missing, unexpected=seen.unexpected, unreadable=seen.unreadable)
    for name in ("different", "matched", "incomplete", "misreported"):
        with trial.where_shown(name):
            if name in seen.hidden:
                raise NotShown(seen.hidden[name])
            trial.measure(**{name: getattr(seen, name)})


class _Keeper(StepWatch):
    """A watch that also keeps the weights of the steps after which a checkpoint is due."""

    def __init__(self, trial: Trial[Checkpointing], subject: Checkpointing, every: int) -> None:
        """Keep the first weights too."""
        super().__init__(trial, subject)
        self._keep_every = 0 if trial.is_elsewhere else every
        self.initial: dict[str, Tensor] = {}
        with contextlib.suppress(NotShown):
            self.initial = snapshot(subject.student_weights())
        self.kept: dict[int, dict[str, Tensor]] = {}

    def __call__(self, step: int, **values: float) -> None:
        """Count, then keep."""
        super().__call__(step, **values)
        if self._keep_every and self.steps % self._keep_every == 0:
            weights = self._subject.student_weights()
            with self._trial.falsifier_fault():
                self.kept[self.steps] = snapshot(weights)


def _examine(trial: Trial[Checkpointing], subject: Checkpointing, every: int, seen: _Findings) -> None:
    """Let the subject train, examine its directory, and remove that."""
    with trial.subject_fault():
        _called(trial, subject)  # who shows no checkpoints says so before a run that would be for nothing
        watch = _Keeper(trial, subject, every)
        run = subject.distill(on_step=watch)
        directory = Path(subject.directory)
    if subject is trial.subject:
        read_back(trial, watch)
    label = f"N={every}"
    if trial.is_elsewhere:
        elsewhere = "the weights in memory after a step are in another process"
        seen.hidden.update(different=elsewhere, matched=elsewhere)
    made = run.told().steps if run.unseen else watch.steps
    called = _called(trial, subject)
    expected: list[Path] = []
    for step in range(every, made + 1, every) if every else ():
        wanted = _name_of(trial, step)
        path = next((path for path, name in called.items() if name == wanted), None)
        if path is None:
            seen.missing.append(f"{label}: {wanted}")
            continue
        expected.append(path)
        if trial.is_elsewhere:
            _look(f"{label}: {path.name}", path, subject, watch.initial, seen)
        else:
            _compare(f"{label}: {path.name}", path, watch.kept[step], watch.initial, seen)
    seen.unexpected += [f"{label}: {path.name}" for path in sorted(called.keys() - set(expected))]
    if trial.is_elsewhere and not subject.tells_of_checkpoints:  # type: ignore[attr-defined]
        seen.hidden.setdefault("misreported", "the output does not tell of checkpoints")
    else:
        _compare_report(label, run, expected, seen)
    seen.runs += 1
    if directory.is_relative_to(trial.workspace):  # a run that was made elsewhere is not ours to remove
        shutil.rmtree(directory, ignore_errors=True)


def _name_of(trial: Trial[Checkpointing], step: int) -> str:
    """What the checkpoint of a step is called: as the claim says by our own trainer, as its file says by another."""
    return f"step {step}" if trial.is_elsewhere else f"ckpt-step-{step:06}"


def _called(trial: Trial[Checkpointing], subject: Checkpointing) -> dict[Path, str]:
    """The files that are called a checkpoint, finished or not, and what each is called; NotShown where nobody knows."""
    if trial.is_elsewhere:
        checkpoints = subject.checkpoints  # type: ignore[attr-defined]
        finished = {path: _name_of(trial, step) for step, path in checkpoints().items()}
        return finished | {path: path.name for suffix in UNFINISHED for path in checkpoints(suffix).values()}
    directory = Path(subject.directory)
    return {path: path.stem for path in directory.iterdir() if "ckpt" in path.name} if directory.is_dir() else {}


def _look(name: str, path: Path, subject: Checkpointing, initial: Mapping[str, Tensor], seen: _Findings) -> None:
    """A file of a trainer in another process, whose memory nobody sees."""
    found = inspect_export(path, initial, initial, subject.read_checkpoint)  # type: ignore[attr-defined]
    if not found.readable:
        seen.unreadable.append(name)
    elif not found.found:
        seen.incomplete.append(f"{name}: no tensor at all")
    elif found.missing:
        seen.incomplete.append(f"{name}: {len(found.missing)} tensors, such as {found.missing[0]}")
    if not initial and not seen.incomplete:
        seen.hidden["incomplete"] = "which tensors the student has is not shown: no initial file is named"


def _compare(
    name: str, path: Path, weights: Mapping[str, Tensor], initial: Mapping[str, Tensor], seen: _Findings
) -> None:
    """A file with the weights that were live when its step ended; what else a checkpoint holds is its own business."""
    found = inspect_export(path, weights, initial)
    if not found.readable:
        seen.unreadable.append(name)
    elif found.missing:
        seen.incomplete.append(f"{name}: {len(found.missing)} tensors, such as {found.missing[0]}")
    elif found.different or found.misshapen or found.mistyped:
        seen.different.append(f"{name}: {(found.different + found.misshapen + found.mistyped)[0]}")
    else:
        seen.matched += 1


def _compare_report(label: str, run: Run, expected: list[Path], seen: _Findings) -> None:
    """The run tells of exactly the checkpoints that there are, in the order of their steps, and of no failed save."""
    told = [Path(path).name for path in run.checkpoints]
    if told != [path.name for path in expected] or run.failed_saves:
        seen.misreported.append(f"{label}: told of {told} and {run.failed_saves} failed saves")
