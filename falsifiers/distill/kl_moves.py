"""F-DISTILL-KL-MOVES-001: ten steps bring the student nearer to the teacher."""

from __future__ import annotations

from falsifiers.distill.held_out import HeldOut, evaluate
from falsifiers.distill.subject import Distillation
from falsifiers.distill.watch import StepWatch, read_back
from harness import Trial

__all__ = ["falsify"]


def falsify(trial: Trial[Distillation]) -> None:
    """Measure the divergence on held-out text before and after; hold the first reported loss against our own."""
    held_out = HeldOut.of(trial)
    before = evaluate(trial, held_out)
    with trial.subject_fault():
        teacher_before = trial.subject.teacher_logits(held_out.first_sequence)
        watch = StepWatch(trial)
        run = trial.subject.distill(on_step=watch)
        teacher_after = trial.subject.teacher_logits(held_out.first_sequence)
    read_back(trial, watch)
    after = evaluate(trial, held_out)
    trial.measure(
        steps_executed=watch.steps,
        initial_kl=before.kl,
        final_kl=after.kl,
        initial_loss=before.loss,
        reported_initial_loss=run.losses[0] if run.losses else float("nan"),
        teacher_drift=(teacher_after - teacher_before).abs().max(),
    )
