"""F-DISTILL-CKPT-EXPORT-001: the export holds the trained weights, all of them, and loads into the same function."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from torch import Tensor

from falsifiers.distill.held_out import HeldOut
from falsifiers.distill.inspection import inspect_export, snapshot, weight_bytes
from falsifiers.distill.subject import Distillation
from falsifiers.distill.watch import StepWatch, read_back
from harness import Trial

__all__ = ["falsify"]

_METADATA = ("teacher_model", "temperature", "alpha", "epoch", "step", "final_loss")


def falsify(trial: Trial[Distillation]) -> None:
    """Train, read the exported file with our own eyes, then run the student on what the file holds."""
    tokens = HeldOut.of(trial).first_sequence
    with trial.subject_fault():
        initial = snapshot(trial.subject.student_weights())
        watch = StepWatch(trial)
        run = trial.subject.distill(on_step=watch)
        live = trial.subject.student_weights()
    read_back(trial, watch)
    seen = inspect_export(run.export, live, initial)
    trial.measure(
        steps_executed=watch.steps,
        readable=seen.readable,
        file_bytes=seen.file_bytes,
        weight_bytes=weight_bytes(live),
        tensors_expected=len(live),
        tensors_found=len(seen.found),
        missing=seen.missing,
        unexpected=seen.unexpected,
        misshapen=seen.misshapen,
        mistyped=seen.mistyped,
        not_finite=seen.not_finite,
        unmoved=seen.unmoved,
        different=seen.different,
        metadata_missing=[key for key in _METADATA if key not in seen.metadata],
    )
    with contextlib.suppress(KeyError, ValueError):
        trial.measure(metadata_step=int(seen.metadata["step"]))
    if seen.movements:
        trial.measure(least_movement=min(seen.movements.values()) / trial.parameters["learning_rate"])
    if seen.loadable:
        with trial.subject_fault():
            now = trial.subject.student_logits(tokens)
            reloaded = trial.subject.student_logits(tokens, _as(live, seen.found))
            at_start = trial.subject.student_logits(tokens, _as(live, initial))
        trial.measure(logits_difference=_farthest(now, reloaded), logits_moved=_farthest(now, at_start))


def _as(live: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights where, and in the dtype in which, the live ones of the same names are."""
    return {name: weights[name].to(weight) for name, weight in live.items()}


def _farthest(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference of two logits of one shape."""
    return float((one - other).abs().max())
