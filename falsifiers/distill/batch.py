"""F-DISTILL-BATCH-001: all rows of a batch train the student, and equally."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from falsifiers.distill.corpus import load_corpus, sample
from falsifiers.distill.subject import Distillation, Gradients
from falsifiers.distill.watch import StepWatch, read_back
from harness import NotMeasured, Trial

__all__ = ["falsify"]

_SEED = 40_403


def falsify(trial: Trial[Gradients]) -> None:
    """Compare a batch's gradient with the mean of its rows' own, and see whether every row can change it."""
    wanted = trial.parameters
    corpus = load_corpus(wanted, trial.cache)
    inputs, labels = sample(corpus.held_out, (_SEED,), wanted["batch"] + 1, wanted["sequence"])
    inputs, labels = inputs.to(trial.device), labels.to(trial.device)
    (spare, spare_labels), (inputs, labels) = (inputs[-1:], labels[-1:]), (inputs[:-1], labels[:-1])

    def gradient(rows: Tensor, answers: Tensor) -> Tensor:
        with trial.subject_fault():
            return _flat(trial.subject.gradients(rows, answers))

    whole = gradient(inputs, labels)
    mean = torch.zeros_like(whole)  # one sum instead of all rows: a row's float64 gradient of 0.5B weights is 4 GB
    for row in range(len(inputs)):
        mean += gradient(inputs[row : row + 1], labels[row : row + 1]) / len(inputs)
    changes = []
    for row in range(len(inputs)):
        changed, answers = inputs.clone(), labels.clone()
        changed[row], answers[row] = spare[0], spare_labels[0]
        changes.append(float((gradient(changed, answers) - whole).norm() / whole.norm()))
    # The gradient of a row that counts for a B-th of the batch, taken out of the batch and put back for another.
    trial.measure(
        rows=len(inputs),
        difference_from_mean=float((whole - mean).norm() / mean.norm()),
        changes=changes,
        repeated_difference=float((gradient(inputs, labels) - whole).norm() / whole.norm()),
    )
    _train(trial)


def _train(trial: Trial[Gradients]) -> None:
    """A few real steps, so that what ran is read back from a subject that trains."""
    subject: Distillation = trial.subject
    with trial.subject_fault():
        watch = StepWatch(trial)  # type: ignore[arg-type]
        subject.distill(on_step=watch)
    read_back(trial, watch)  # type: ignore[arg-type]


def _flat(gradients: Mapping[str, Tensor]) -> Tensor:
    """All gradients as one float64 vector, in the order of their names."""
    if not gradients:
        raise NotMeasured("this subject shows no gradients")
    return torch.cat([gradients[name].detach().double().flatten() for name in sorted(gradients)])
