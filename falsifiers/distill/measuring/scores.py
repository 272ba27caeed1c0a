"""Evaluates a student on held-out text, also one without a teacher, and one of another process."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from torch import Tensor

from falsifiers.distill.measuring.held_out import Evaluation, HeldOut, evaluate, surprise
from falsifiers.distill.subject import Distillation
from harness import NotObserved, Trial, Unobserved, propagates


@dataclass(frozen=True)
class Scores:
    """As `Evaluation`, and more. Each value may be hidden.

    Attributes:
        loss: by the claim's formula, or by that of the trainer's TOML file if it states one.
        as_reported: the same, if the subject is known to report this loss.
        of_a_fresh_student: the cross entropy of a student that has not learnt the text yet.
    """

    loss: float
    as_reported: float
    kl: float
    blind_kl: float
    misplaced_kl: float
    cross_entropy: float
    of_a_fresh_student: float
    teacher_cross_entropy: float
    teacher_logits: Tensor


def held_out_of(trial: Trial[Any], in_process: bool) -> HeldOut:
    """The claim's text; for a trainer in another process, the text that its TOML file names."""
    if isinstance(in_process, Unobserved):
        held_out: HeldOut = trial.subject.held_out()
        return held_out
    return HeldOut.of(trial)


def scores(trial: Trial[Distillation], held_out: HeldOut, in_process: bool) -> Scores:
    """Evaluate the trial's student, and its teacher if it has one."""
    seen = evaluate(trial, held_out)
    entropy = seen.cross_entropy if isinstance(seen, Evaluation) else _cross_entropy(trial, held_out)
    stated = "distillation" if in_process is True else trial.subject.reported_loss  # type: ignore[attr-defined]
    claims = entropy if trial.parameters["alpha"] == 1 else seen.loss  # without a teacher the loss has no divergence
    loss = {"cross_entropy": entropy, "kl": seen.kl}.get(stated, claims)
    unstated = Unobserved("which loss the run logs is not known; the TOML file of a command says it as /log/loss")
    return Scores(
        loss=loss,
        as_reported=loss if stated else unstated,  # type: ignore[arg-type]
        kl=seen.kl,
        blind_kl=seen.blind_kl,
        misplaced_kl=seen.misplaced_kl,
        cross_entropy=entropy,
        of_a_fresh_student=entropy if in_process is True else _of_fresh(entropy, held_out),
        teacher_cross_entropy=seen.teacher_cross_entropy,
        teacher_logits=seen.teacher_logits,
    )


@propagates
def _cross_entropy(trial: Trial[Distillation], held_out: HeldOut) -> float:
    entropies = []
    for inputs, labels in held_out.batches:
        with trial.subject_fault():
            logits = trial.subject.student_logits(inputs)
        entropies += [float(surprise(of_row, label)) for of_row, label in zip(logits, labels, strict=True)]
    return fmean(entropies)


@propagates
def _of_fresh(entropy: float, held_out: HeldOut) -> float:
    """The cross entropy of a student, if it is no better than token frequencies."""
    if entropy < held_out.blind_cross_entropy:
        raise NotObserved("the student knows the text before the run; the bound is for a fresh one")
    return entropy
