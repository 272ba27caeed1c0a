"""F-DISTILL-CKPT-EXPORT-001: the export holds the trained weights, all of them, and loads into the same function."""

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from falsifiers.distill.measuring import metadata
from falsifiers.distill.measuring.held_out import HeldOut
from falsifiers.distill.measuring.next_loss import NextLoss
from falsifiers.distill.measuring.weight_comparison import inspect_export, same_tensor, snapshot, weight_bytes
from falsifiers.distill.measuring.weight_files import WeightFiles, weight_files
from falsifiers.distill.oracle.answers import IndependentModel, deepest_difference, in_tolerances
from falsifiers.distill.running.further_subjects import further_subject
from falsifiers.distill.running.training import StepWatch, Training, train
from falsifiers.distill.subject import Distillation
from harness import NotObserved, Trial, Unobserved, first_observed, propagates, provided
from harness.tools.trainer.model_folder import weight_paths

_HALF = {
    "model": "qwen2-tiny", "tokenizer": "bytes", "dtype": "bfloat16", "steps": 2, "checkpoint_every": 0,
    "teacher_steps": 1,
}  # fmt: skip
"""A small run in another dtype."""


def falsify(trial: Trial[Distillation]) -> None:
    """Train, read the exported file independently, then run the student with the tensors of the file."""
    files = weight_files(trial.subject)
    initial = snapshot(_weights(trial))
    training = train(trial, _LastStepWatch)
    live = _weights(trial)
    student = first_observed(live, initial)  # names and shapes are the same before the run and after it
    seen = inspect_export(
        training.run.export, first_observed(student, {}), first_observed(initial, live, {}), files.read_export
    )
    trial.measure(
        readable=seen.readable,
        file_bytes=sum(part.stat().st_size for part in weight_paths(training.run.export) if part.is_file()),
        tensors_found=len(seen.exported),
        not_finite=seen.not_finite,
        steps_executed=training.steps,
        weight_changes=training.changes,
        weight_bytes=provided(live, weight_bytes(student)),
        tensors_expected=_count(student),
        missing=provided(student, seen.missing),
        unexpected=provided(student, seen.unexpected),
        misshapen=provided(student, seen.misshapen),
        # a trainer may compute in another dtype than its initial file has
        mistyped=provided(live, seen.mistyped + first_observed(_wrong_in_half_precision(trial), [])),
        unmoved=provided(initial, getattr(files, "moving", list)(seen.unmoved)),  # a run of adapters leaves others
        different=provided(live, seen.different),
        not_of_last_step=_unlike(snapshot(live) if training.watch.last is None else training.watch.last, seen.exported),
    )
    _measure_metadata(trial, training, _metadata(trial, seen.metadata, files))
    if seen.movements:
        least = min(seen.movements.values()) / trial.parameters["learning_rate"]
        # the bound assumes AdamW at the claim's learning rate; another process may use another optimizer
        trial.measure(least_movement=provided(files.in_memory, provided(initial, least)))
    if seen.loadable:
        tokens = HeldOut.of(trial).first_sequence
        now = _logits(trial, tokens, live, live)
        trial.measure(
            logits_difference=_farthest(now, _logits(trial, tokens, live, seen.exported)),
            logits_moved=_farthest(now, _logits(trial, tokens, live, initial)),
        )
        _measure_function(trial, tokens, now, live, seen.exported)


@propagates
def _wrong_in_half_precision(trial: Trial[Distillation]) -> list[str]:
    """The tensors that the export of another, small run in bfloat16 lacks or holds otherwise."""
    with trial.subject_fault():
        subject = further_subject(trial, "half", **_HALF)
        files, initial = weight_files(subject), snapshot(subject.student_weights())
        run = subject.distill(on_step=lambda step, **values: None)
        seen = inspect_export(run.export, snapshot(subject.student_weights()), initial, files.read_export)
    return [*seen.missing, *seen.mistyped, *seen.different]


class _LastStepWatch(StepWatch):
    """Also keeps the weights as the last step left them: later changes are no training.

    Attributes:
        last: these weights; None if the last step was never reported.
        next_loss: knows the loss of the last step.
    """

    def __init__(self, trial: Trial[Distillation]) -> None:
        super().__init__(trial)
        self.last: Mapping[str, Tensor] | None = None
        self.next_loss = NextLoss(trial, {trial.parameters["steps"]})

    def __call__(self, step: int, **values: float) -> None:
        """Count the step, then keep the weights of the last one."""
        super().__call__(step, **values)
        self.next_loss()
        if self.steps >= self._trial.parameters["steps"]:
            weights = self._subject.student_weights()
            with self._trial.falsifier_fault():
                self.last = snapshot(weights)


@propagates
def _weights(trial: Trial[Distillation]) -> Mapping[str, Tensor]:
    with trial.subject_fault():
        weights = trial.subject.student_weights()
    if not weights:
        raise NotObserved("the student shows no weights")
    return weights


@propagates
def _count(weights: Mapping[str, Tensor]) -> int:
    return len(weights)


@propagates
def _unlike(last: Mapping[str, Tensor], exported: Mapping[str, Tensor]) -> list[str]:
    """The names of tensors that the file does not hold as the last step left them."""
    return [name for name in sorted(last) if not _same(last[name], exported.get(name))]


def _same(first: Tensor, second: Tensor | None) -> bool:
    """Whether both tensors exist and have the same shape, dtype and bits."""
    return second is not None and same_tensor(first, second)


@propagates
def _logits(
    trial: Trial[Distillation], tokens: Tensor, live: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> Tensor:
    """The student's logits with these weights, which are moved to the device of the live ones."""
    with trial.subject_fault():
        return trial.subject.student_logits(
            tokens, None if weights is live else {name: weights[name].to(weight) for name, weight in live.items()}
        )


def _measure_function(
    trial: Trial[Distillation], tokens: Tensor, now: Tensor, live: Mapping[str, Tensor], exported: Mapping[str, Tensor]
) -> None:
    """Load the file into the independent model; compare that with the student in memory and with its live weights."""
    if isinstance(hidden := provided(live, now), Unobserved):
        trial.measure(logits_error=hidden, layers_apart=hidden)
        return
    model = IndependentModel(trial.parameters, trial.device)
    of_file = model.answer(exported, tokens)
    trial.measure(
        logits_error=in_tolerances(now, of_file, trial.parameters["dtype"]),
        layers_apart=deepest_difference(of_file, model.answer(live, tokens)),
    )


@propagates
def _farthest(first: Tensor, second: Tensor) -> float:
    """The largest absolute difference of two tensors of logits of one shape."""
    return float((first - second).abs().max())


def _measure_metadata(trial: Trial[Distillation], training: Training[_LastStepWatch], seen: Mapping[str, str]) -> None:
    """Check what the file says of the run."""
    run, watch = training.run, training.watch
    checked = [metadata.untrue_settings(seen, trial.parameters), metadata.untrue_loss(seen, _last(run.losses))]
    further = [
        metadata.untrue_loss(seen, _last(watch.next_loss.expected)),
        metadata.untrue_step(seen, training.steps),
    ]
    if not run.is_heard:  # a trainer in another process has its own names and text
        further.append(metadata.untrue_names(seen, trial.parameters, trial.cache, watch.made))
    untrue = sorted({key for result in checked + further if not isinstance(result, Unobserved) for key in result})
    trial.measure(
        metadata_missing=metadata.missing(seen, trial.parameters["required_metadata"]),
        metadata_untrue=untrue or next((key for key in checked if isinstance(key, Unobserved)), untrue),
    )


def _metadata(trial: Trial[Distillation], exported: Mapping[str, str], files: WeightFiles) -> Mapping[str, str]:
    """The metadata about the run, without keys that no claim knows, such as transformers' `format`."""
    stated = {key: value for key, value in exported.items() if key in metadata.KEYS}
    return stated if stated or not trial.parameters["required_metadata"] else files.no_metadata


@propagates
def _last(losses: Sequence[float] | Mapping[int, float]) -> float:
    """The loss of the last step; NaN if there is none."""
    values = list(losses.values() if isinstance(losses, Mapping) else losses)
    return values[-1] if values else math.nan
