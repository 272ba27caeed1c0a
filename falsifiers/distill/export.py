"""F-DISTILL-CKPT-EXPORT-001: the export holds the trained weights, all of them, and loads into the same function."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from falsifiers.distill.measuring.held_out import HeldOut
from falsifiers.distill.measuring.weight_comparison import inspect_export, same_bits, snapshot, weight_bytes
from falsifiers.distill.measuring.weight_files import weight_files
from falsifiers.distill.running.training import StepWatch, train
from falsifiers.distill.subject import Distillation, Run
from harness import NotShown, Trial, first_shown, look, provided

__all__ = ["falsify"]

_METADATA = ("teacher_model", "temperature", "alpha", "epoch", "step", "final_loss")


def falsify(trial: Trial[Distillation]) -> None:
    """Train, read the exported file with our own eyes, then run the student on what the file holds."""
    files = weight_files(trial.subject)
    initial = snapshot(_weights(trial))
    training = train(trial, _LastStepWatch)
    live = _weights(trial)
    student = first_shown(live, initial)  # names, shapes and dtypes are the same before the run and after it
    seen = inspect_export(
        training.run.export, first_shown(student, {}), first_shown(initial, live, {}), files.read_export
    )
    trial.measure(
        readable=seen.readable,
        file_bytes=seen.file_bytes,
        tensors_found=len(seen.found),
        not_finite=seen.not_finite,
        steps_executed=training.steps,
        weight_changes=training.changes,
        weight_bytes=weight_bytes(student),
        tensors_expected=_count(student),
        missing=provided(student, seen.missing),
        unexpected=provided(student, seen.unexpected),
        misshapen=provided(student, seen.misshapen),
        mistyped=provided(student, seen.mistyped),
        unmoved=provided(initial, seen.unmoved),
        different=provided(live, seen.different),
        not_of_last_step=_unlike(snapshot(live) if training.watch.last is None else training.watch.last, seen.found),
    )
    _measure_metadata(trial, training.run, seen.metadata or files.no_metadata)
    if seen.movements:
        least = min(seen.movements.values()) / trial.parameters["learning_rate"]
        trial.measure(least_movement=provided(initial, least))
    if seen.loadable:
        tokens = HeldOut.of(trial).first_sequence
        now = _logits(trial, tokens, live, live)
        trial.measure(
            logits_difference=_farthest(now, _logits(trial, tokens, live, seen.found)),
            logits_moved=_farthest(now, _logits(trial, tokens, live, initial)),
        )


class _LastStepWatch(StepWatch):
    """A watch that also keeps the weights as the last step left them: what changes them afterwards is no training."""

    def __init__(self, trial: Trial[Distillation]) -> None:
        """Keep nothing yet."""
        super().__init__(trial)
        self.last: Mapping[str, Tensor] | None = None

    def __call__(self, step: int, **values: float) -> None:
        """Count, then keep."""
        super().__call__(step, **values)
        if self.steps >= self._trial.parameters["steps"]:
            weights = self._subject.student_weights()
            with self._trial.falsifier_fault():
                self.last = snapshot(weights)


@look
def _weights(trial: Trial[Distillation]) -> Mapping[str, Tensor]:
    """The student's weights as they are now."""
    with trial.subject_fault():
        weights = trial.subject.student_weights()
    if not weights:
        raise NotShown("the student shows no weights")
    return weights


@look
def _count(weights: Mapping[str, Tensor]) -> int:
    return len(weights)


@look
def _unlike(last: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that the file does not hold as the last step left them."""
    return [name for name in sorted(last) if not _same(last[name], found.get(name))]


def _same(one: Tensor, other: Tensor | None) -> bool:
    """Whether the other is there, and has this one's shape, dtype and bits."""
    return other is not None and (one.shape, one.dtype) == (other.shape, other.dtype) and same_bits(one, other)


@look
def _logits(
    trial: Trial[Distillation], tokens: Tensor, live: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> Tensor:
    """The student's answer with these weights, which are brought where the live ones are."""
    with trial.subject_fault():
        return trial.subject.student_logits(
            tokens, None if weights is live else {name: weights[name].to(weight) for name, weight in live.items()}
        )


@look
def _farthest(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference of two logits of one shape."""
    return float((one - other).abs().max())


def _measure_metadata(trial: Trial[Distillation], run: Run, metadata: Mapping[str, str]) -> None:
    """Whether the file says of the run what the run did."""
    trial.measure(metadata_missing=_missing(metadata), metadata_untrue=_untrue(metadata, trial.parameters, run))
    step = _step_in(metadata)
    if isinstance(step, int):
        trial.measure(metadata_step=step)


@look
def _missing(metadata: Mapping[str, str]) -> list[str]:
    return [key for key in _METADATA if key not in metadata]


@look
def _step_in(metadata: Mapping[str, str]) -> int | None:
    """The step that the metadata name; None if there is none or it is no number."""
    with contextlib.suppress(KeyError, ValueError):
        return int(metadata["step"])
    return None


@look
def _untrue(metadata: Mapping[str, str], parameters: Mapping[str, Any], run: Run) -> list[str]:
    """The numbers in the metadata that are not the run's own; those that are absent are `metadata_missing`."""
    told = [key for key in ("temperature", "alpha") if key in metadata]
    untrue = [key for key in told if not _is_number(metadata[key], parameters[key])]
    loss = _untrue_loss(metadata, run)
    return first_shown(untrue + loss, untrue) if untrue else loss


@look
def _untrue_loss(metadata: Mapping[str, str], run: Run) -> list[str]:
    if "final_loss" not in metadata or _is_number(metadata["final_loss"], run.losses[-1] if run.losses else None):
        return []
    return ["final_loss"]


def _is_number(text: str, number: float | None) -> bool:
    """Whether a text says a number, to the digits that a trainer may print of a loss."""
    with contextlib.suppress(ValueError):
        return number is not None and math.isclose(float(text), number, rel_tol=1e-3)
    return False
