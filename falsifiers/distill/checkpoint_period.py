"""F-DISTILL-CKPT-PERIOD-001: every N steps there is a checkpoint, under its name, with the weights of that step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from falsifiers.distill.measuring import metadata
from falsifiers.distill.measuring.training_state import StateDigest, digest_of
from falsifiers.distill.measuring.weight_comparison import Inspection, inspect_export, snapshot
from falsifiers.distill.measuring.weight_files import WeightFiles, weight_files
from falsifiers.distill.running.further_subjects import further_subject
from falsifiers.distill.running.repeated_run import RepeatedRun, repeat, repeat_alike
from falsifiers.distill.running.shown import shown
from falsifiers.distill.running.training import StepWatch, read_back
from falsifiers.distill.subject import Checkpointing, Run
from harness import Trial, Unobserved, first_observed, propagates, provided
from harness.base.beneath import Beneath
from harness.base.removal import remove

_DEFAULT = 5000  # the default of SPEC-DISTILL-001 if no interval is given (PR #1856)


@dataclass
class _Findings:
    """What was wrong in all runs of a trial, as text."""

    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    metadata_untrue: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)
    misreported: list[str] = field(default_factory=list)
    export_wrong: list[str] = field(default_factory=list)
    matched: int = 0
    student: Any = None
    """Unobserved if the subject does not show which tensors the student has."""
    in_memory: Any = None
    """Unobserved if the subject does not show the weights in memory."""
    compared: Any = None
    """Unobserved if neither the weights in memory nor those of another run are known."""
    state: Any = None
    """Unobserved if the subject does not show the state of the optimizer."""

    def measurements(self) -> dict[str, Any]:
        """The measurements by name. Incomplete files can be listed only if the student's tensors are known."""
        inner = ("student", "in_memory", "compared", "state", "matched")
        values = {name: value for name, value in vars(self).items() if name not in inner}
        return values | {
            "incomplete": self.incomplete or provided(self.student, self.incomplete),
            "different": provided(self.compared, self.different),
            "foreign": provided(self.state, self.foreign),
            "metadata_untrue": provided(self.in_memory, self.metadata_untrue),
            "miscounted": self.miscounted or provided(self.state, self.miscounted),
            "export_wrong": provided(self.in_memory, self.export_wrong),
        }


def falsify(trial: Trial[Checkpointing]) -> None:
    """Train with several checkpoint intervals, and with none; compare every file with the weights at its step.

    Neither the subject's directory nor its parent exists before a run. The files of a trainer in another process are
    compared with the files of other runs: see `repeated_run`.
    """
    seen = _Findings()
    is_inside = not isinstance(weight_files(trial.subject).in_memory, Unobserved)
    steps: int = trial.parameters["steps"]
    truth = None if is_inside else repeat_alike(trial, steps)
    if isinstance(truth, RepeatedRun):
        trial.subject.witness = truth.subject  # type: ignore[attr-defined]
        still = [step for step in range(2, steps + 1) if truth.stands_still(step)]
        seen.different += [f"N=1: step {step} holds the weights of step {step - 1}" for step in still]
    _examine(trial, trial.subject, trial.parameters["checkpoint_every"], seen, truth)
    for every in trial.parameters["periods"]:
        with trial.subject_fault():
            subject = further_subject(trial, f"every-{every}/new", checkpoint_every=every)
        _examine(trial, subject, every, seen, truth)
    if steps := trial.parameters["steps_of_many"]:
        many = provided(truth, repeat(trial, steps)) if isinstance(truth, RepeatedRun) else truth
        with trial.subject_fault():
            subject = further_subject(trial, "many/new", checkpoint_every=1, steps=steps)
        _examine(trial, subject, 1, seen, many)
    with trial.subject_fault():
        subject = further_subject(
            trial, "default/new", without=("checkpoint_every",), steps=trial.parameters["steps_without_period"]
        )
    _examine(trial, subject, _DEFAULT, seen, truth)
    trial.measure(matched=provided(seen.compared, seen.matched))


class _CheckpointWatch(StepWatch):
    """Also keeps the weights of the steps after which a checkpoint is due, and of the last step.

    Attributes:
        initial: the weights before the first step.
        last: the weights after the last step; hidden if the subject does not show them.
        trained: the names of the parameters that require gradients; all names if none is known to.
        kept: the expected content of each checkpoint, by step.
    """

    def __init__(self, trial: Trial[Checkpointing], subject: Checkpointing, every: int) -> None:
        super().__init__(trial, subject)
        if every != _DEFAULT:
            self._every = 1  # these runs are short
        self._keep_every = every
        self._in_memory = weight_files(subject).in_memory
        self.initial = self.last = snapshot(subject.student_weights())
        self.trained: set[str] = set()
        self.kept: dict[int, _Kept] = {}

    def __call__(self, step: int, **values: float) -> None:
        """Count the step, then keep its weights if a checkpoint is due."""
        super().__call__(step, **values)
        weights = provided(self._in_memory, self._subject).student_weights()  # not those of the file itself
        with self._trial.falsifier_fault():
            self.last, self.trained = snapshot(weights), _trained(weights)
        if self._keep_every and self.steps % self._keep_every == 0:
            slots = shown(self._subject, "optimizer_state")
            with self._trial.falsifier_fault():
                loss = values.get("loss", math.nan)
                self.kept[self.steps] = _Kept(self.steps, self.last, digest_of(slots), loss)


@propagates
def _trained(weights: Mapping[str, Tensor]) -> set[str]:
    return {name for name, weight in weights.items() if weight.requires_grad} or set(weights)


@dataclass(frozen=True)
class _Kept:
    """The expected content of a checkpoint.

    Attributes:
        step: the step, counted by the falsifier.
        weights: the live weights after the step; hidden if the subject does not show them.
        state: the other tensors that a resumed training needs; hidden if the subject does not show them.
        loss: the loss that the subject reported for the step.
    """

    step: int
    weights: Mapping[str, Tensor]
    state: StateDigest
    loss: float


def _examine(
    trial: Trial[Checkpointing],
    subject: Checkpointing,
    every: int,
    seen: _Findings,
    truth: RepeatedRun | None = None,
) -> None:
    """Train once, check the directory, remove it, and measure the findings of all runs so far.

    Args:
        truth: another run, whose files hold the expected weights; None if the weights in memory are shown.
    """
    files = weight_files(subject)
    with trial.subject_fault():
        files.checkpoints(Path(subject.directory))  # raises early if the subject shows no checkpoints
        watch = _CheckpointWatch(trial, subject, every)
        run = subject.distill(on_step=watch)
        directory = Path(subject.directory)
        seen.state = provided(shown(subject, "optimizer_state"), None)
    if subject is trial.subject:
        read_back(trial, watch.made)
    label = f"N={every}"
    called = files.checkpoints(directory)
    expected: list[Path] = []
    seen.in_memory = files.in_memory
    seen.compared = files.in_memory if truth is None else provided(truth, True)
    for step in range(every, (run.steps if run.unreported else watch.steps) + 1, every) if every else ():
        wanted = files.name(step)
        path = next((path for path, name in called.items() if name == wanted), None)
        if path is None:
            seen.missing.append(f"{label}: {wanted}")
            continue
        expected.append(path)
        kept = provided(files.in_memory, watch.kept)[step]
        weights = kept.weights if truth is None else truth.at(step)
        finding = _compare(f"{label}: {path.name}", path, files, watch.initial, weights, seen)
        _examine_rest(f"{label}: {path.name}", finding, kept, trial.parameters, seen)
    seen.unexpected += [f"{label}: {path.name}" for path in sorted(called.keys() - set(expected))]
    seen.misreported = seen.misreported + _misreported(label, run, expected)
    if not isinstance(files.in_memory, Unobserved):
        seen.export_wrong += [f"{label}: {wrong}" for wrong in _export_wrong(run.export, watch, files)]
    if watch.made != watch.steps:
        seen.miscounted.append(f"{label}: {watch.made} steps by the optimizer, {watch.steps} as reported")
    elif first_observed(watch.changes, watch.looks) != watch.looks:
        seen.miscounted.append(f"{label}: {watch.changes} of {watch.looks} steps are one step of AdamW")
    trial.measure(**seen.measurements())
    if directory.is_relative_to(trial.workspace):  # the directory of a recorded run is not ours to remove
        remove(Beneath(directory.parent, directory.name))


def _compare(
    name: str,
    path: Path,
    files: WeightFiles,
    initial: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    seen: _Findings,
) -> Inspection:
    """Compare a file with the weights that were live at the end of its step."""
    student = first_observed(weights, initial)
    inspection = inspect_export(
        path, first_observed(student, {}), first_observed(initial, weights, {}), files.read_checkpoint
    )
    if not inspection.readable:
        seen.unreadable.append(name)
    elif not inspection.exported:
        seen.incomplete.append(f"{name}: no tensor at all")
    elif inspection.missing:
        seen.incomplete.append(f"{name}: {len(inspection.missing)} tensors, such as {inspection.missing[0]}")
    elif faults := inspection.different + inspection.misshapen + inspection.mistyped:
        seen.different.append(f"{name}: {faults[0]}")
    else:
        seen.student = provided(student, seen.student)
        seen.matched += 1
    return inspection


@propagates
def _examine_rest(
    name: str, inspection: Inspection, kept: _Kept, parameters: Mapping[str, Any], seen: _Findings
) -> None:
    """Check the rest of a file: tensors that must and must not be there, and the metadata."""
    untrue = [
        *metadata.untrue_settings(inspection.metadata, parameters),
        *metadata.untrue_step(inspection.metadata, kept.step),
        *metadata.untrue_loss(inspection.metadata, kept.loss),
    ]
    seen.metadata_untrue += [f"{name}: {key}" for key in untrue]
    if isinstance(kept.state, Unobserved) or not inspection.exported:
        return
    rest = {key: tensor for key, tensor in inspection.exported.items() if key not in kept.weights}
    if lost := kept.state.lost(rest):
        seen.incomplete.append(f"{name}: {lost} slots of the optimizer")
    seen.foreign += [f"{name}: {key}" for key in kept.state.foreign(rest)]


def _export_wrong(path: Path, watch: _CheckpointWatch, files: WeightFiles) -> list[str]:
    """The differences between an export and the student after the last step."""
    inspection = inspect_export(path, watch.last, watch.initial, files.read_export)
    if not inspection.readable:
        return ["not readable"]
    if not inspection.exported:
        return ["no tensor at all"]
    unmoved = [name for name in inspection.unmoved if name in watch.trained]
    faults = [
        *inspection.missing,
        *inspection.unexpected,
        *inspection.misshapen,
        *inspection.mistyped,
        *inspection.different,
        *unmoved,
    ]
    return [f"{len(faults)} tensors, such as {faults[0]}"] if faults else []


@propagates
def _misreported(label: str, run: Run, expected: list[Path]) -> list[str]:
    """The run must report exactly the checkpoints that exist, in the order of their steps, and no failed save."""
    reported = [Path(path).name for path in run.checkpoints]
    if reported != [path.name for path in expected] or run.failed_saves:
        return [f"{label}: told of {reported} and {run.failed_saves} failed saves"]
    return []
