"""F-DISTILL-CKPT-ROUNDTRIP-001: a saved student, loaded into a fresh one, is the same function to the last bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from falsifiers.distill.measuring.held_out import HeldOut
from falsifiers.distill.measuring.weight_comparison import same_tensor, snapshot
from falsifiers.distill.measuring.weight_files import Unreadable, weight_files
from falsifiers.distill.oracle.answers import IndependentModel, in_tolerances
from falsifiers.distill.running.further_subjects import setting_of
from falsifiers.distill.running.training import StepWatch, train
from falsifiers.distill.subject import Checkpointing
from harness import Trial


@dataclass(frozen=True)
class _Student:
    """A student at one moment: weights on the CPU, and logits on the same tokens."""

    weights: Mapping[str, Tensor]
    logits: Tensor

    @classmethod
    def of(cls, subject: Checkpointing, tokens: Tensor) -> _Student:
        """Copy the student's present state. Call it inside `subject_fault`."""
        return cls(snapshot(subject.student_weights()), subject.student_logits(tokens).cpu())


def falsify(trial: Trial[Checkpointing]) -> None:
    """Train. Load the last periodic checkpoint, then the export, into a student with another seed."""
    tokens = _tokens(trial)
    kept: dict[int, _Student] = {}
    every = trial.parameters["checkpoint_every"]
    last_due = trial.parameters["steps"] // every * every

    class Keeping(StepWatch):
        """Also keeps the student of the last checkpoint."""

        def __call__(self, step: int, **values: float) -> None:
            super().__call__(step, **values)
            if self.steps == last_due:
                kept[last_due] = _Student.of(trial.subject, tokens)

    training = train(trial, Keeping)
    run = training.run
    with trial.subject_fault():
        at_end = _Student.of(trial.subject, tokens)
        fresh = setting_of(trial, "reloaded")
        other = type(trial.subject)(replace(fresh, seed=fresh.seed + 1))
        before = _Student.of(other, tokens)
        saved = (run.checkpoints[-1], kept[last_due]), (run.export, at_end)
    missing: list[str] = []
    unexpected: list[str] = []
    different: list[str] = []
    differences: list[float] = []
    errors: list[float] = []
    model = IndependentModel(trial.parameters, trial.device)
    for path, original in saved:
        with trial.subject_fault():
            other.load(Path(path))
            reloaded = _Student.of(other, tokens)
        missing += sorted(original.weights.keys() - reloaded.weights.keys())
        unexpected += sorted(reloaded.weights.keys() - original.weights.keys())
        different += [
            name
            for name in sorted(original.weights.keys() & reloaded.weights.keys())
            if not same_tensor(original.weights[name], reloaded.weights[name])
        ]
        differences.append(_farthest(original.logits, reloaded.logits))
        errors.append(_error(trial, model, Path(path), original, tokens))
    trial.measure(
        steps_executed=training.steps,
        missing=missing,
        unexpected=unexpected,
        different=different,
        logits_differences=differences,
        logits_errors=errors,
        logits_apart_before=_farthest(at_end.logits, before.logits),
        logits_between=_farthest(kept[last_due].logits, at_end.logits),
    )


def _tokens(trial: Trial[Checkpointing]) -> Tensor:
    """Two sequences [2, sequence]: held-out text, and ids spread over the whole vocabulary."""
    text = HeldOut.of(trial).first_sequence
    with trial.subject_fault():
        vocabulary = trial.subject.student_logits(text).shape[-1]
    spread = torch.linspace(0, vocabulary - 1, text.shape[1], device=text.device).round().long()
    return torch.cat([text, spread.unsqueeze(0)])


def _error(
    trial: Trial[Checkpointing], model: IndependentModel, path: Path, original: _Student, tokens: Tensor
) -> float:
    """The distance of the saved student from the independent model with the file's weights, in tolerances."""
    try:
        tensors, _ = weight_files(trial.subject).read_checkpoint(path)
    except (OSError, Unreadable) as error:
        print(f"{path} cannot be read: {error}")
        return math.inf
    weights = {name: tensor for name, tensor in tensors.items() if name in original.weights}
    return in_tolerances(original.logits, model.answer(weights, tokens), trial.parameters["dtype"])


def _farthest(first: Tensor, second: Tensor) -> float:
    """The largest absolute difference of two logits; infinite if their shapes differ."""
    return float((first - second).abs().max()) if first.shape == second.shape else float("inf")
