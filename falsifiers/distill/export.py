"""F-DISTILL-CKPT-EXPORT-001: the export holds the trained weights, all of them, and loads into the same function."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from falsifiers.distill.held_out import HeldOut
from falsifiers.distill.inspection import inspect_export, same_bits, snapshot, weight_bytes
from falsifiers.distill.subject import Distillation, Run
from falsifiers.distill.watch import StepWatch, read_back
from harness import NotShown, Trial

__all__ = ["falsify"]

_METADATA = ("teacher_model", "temperature", "alpha", "epoch", "step", "final_loss")


def falsify(trial: Trial[Distillation]) -> None:
    """Train, read the exported file with our own eyes, then run the student on what the file holds."""
    initial: dict[str, Tensor] = {}
    live: Mapping[str, Tensor] = {}
    with trial.where_shown(), trial.subject_fault():
        initial = snapshot(trial.subject.student_weights())
    with trial.subject_fault():
        watch = _Keeper(trial)
        run = trial.subject.distill(on_step=watch)
    with trial.where_shown(), trial.subject_fault():
        live = trial.subject.student_weights()
    read_back(trial, watch)
    read = trial.subject.read_export if trial.is_elsewhere else None  # type: ignore[attr-defined]
    seen = inspect_export(run.export, live or initial, initial or live, read)
    trial.measure(
        readable=seen.readable,
        file_bytes=seen.file_bytes,
        tensors_found=len(seen.found),
        not_finite=seen.not_finite,
    )
    _measure_steps(trial, watch, run, seen.metadata)
    if student := live or initial:  # names, shapes and dtypes are the same before the run and after it
        trial.measure(
            weight_bytes=weight_bytes(student),
            tensors_expected=len(student),
            missing=seen.missing,
            unexpected=seen.unexpected,
            misshapen=seen.misshapen,
            mistyped=seen.mistyped,
        )
    if initial:
        trial.measure(unmoved=seen.unmoved)
        if seen.movements:
            trial.measure(least_movement=min(seen.movements.values()) / trial.parameters["learning_rate"])
    if live:
        kept = watch.kept or snapshot(live)  # who trains elsewhere has shown its last step as what is live now
        trial.measure(
            different=seen.different,
            not_of_last_step=[name for name in sorted(kept) if not _same(kept[name], seen.found.get(name))],
        )
    if seen.loadable and live:
        _measure_function(trial, live, seen.found, initial)


class _Keeper(StepWatch):
    """A watch that also keeps the weights as the last step left them: what changes them afterwards is no training."""

    def __init__(self, trial: Trial[Distillation]) -> None:
        """Keep nothing yet."""
        super().__init__(trial)
        self.kept: dict[str, Tensor] = {}

    def __call__(self, step: int, **values: float) -> None:
        """Count, then keep."""
        super().__call__(step, **values)
        if self.steps >= self._trial.parameters["steps"] and not self._trial.is_elsewhere:
            weights = self._trial.subject.student_weights()
            with self._trial.falsifier_fault():
                self.kept = snapshot(weights)


def _same(one: Tensor, other: Tensor | None) -> bool:
    """Whether the other is there, and has this one's shape, dtype and bits."""
    return other is not None and (one.shape, one.dtype) == (other.shape, other.dtype) and same_bits(one, other)


def _measure_function(
    trial: Trial[Distillation], live: Mapping[str, Tensor], found: Mapping[str, Tensor], initial: Mapping[str, Tensor]
) -> None:
    """The student's answers as it is now, with what the file holds, and with what it was before the run."""
    if trial.is_elsewhere:
        with trial.where_shown():
            raise NotShown("what the student answers is not seen from outside")
        return
    tokens = HeldOut.of(trial).first_sequence
    with trial.subject_fault():
        now = trial.subject.student_logits(tokens)
        reloaded = trial.subject.student_logits(tokens, _as(live, found))
        at_start = trial.subject.student_logits(tokens, _as(live, initial))
    trial.measure(logits_difference=_farthest(now, reloaded), logits_moved=_farthest(now, at_start))


def _measure_steps(trial: Trial[Distillation], watch: StepWatch, run: Run, metadata: Mapping[str, str]) -> None:
    """What the run did, and whether the file says the same of it."""
    told = {**trial.parameters, "final_loss": run.losses[-1] if run.losses else None}
    with trial.where_shown():
        if trial.is_elsewhere and not metadata:  # not every format has a place for them
            raise NotShown("the export says nothing about itself")
        trial.measure(
            metadata_missing=[key for key in _METADATA if key not in metadata],
            metadata_untrue=_untrue(metadata, told),
        )
        with contextlib.suppress(KeyError, ValueError):
            trial.measure(metadata_step=int(metadata["step"]))
    with trial.where_shown():
        run.seen()
        trial.measure(steps_executed=watch.steps)
    with trial.where_shown():
        trial.measure(weight_changes=watch.changes)


def _as(live: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights where, and in the dtype in which, the live ones of the same names are."""
    return {name: weights[name].to(weight) for name, weight in live.items()}


def _farthest(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference of two logits of one shape."""
    return float((one - other).abs().max())


def _untrue(metadata: Mapping[str, str], truth: Mapping[str, Any]) -> list[str]:
    """The numbers in the metadata that are not the run's own; one that is absent is told elsewhere."""
    told = [key for key in ("temperature", "alpha", "final_loss") if key in metadata]
    return [key for key in told if not _is_number(metadata[key], truth[key])]


def _is_number(text: str, number: float | None) -> bool:
    """Whether a text says a number, to the digits that a trainer may print of a loss."""
    with contextlib.suppress(ValueError):
        return number is not None and math.isclose(float(text), number, rel_tol=1e-3)
    return False
