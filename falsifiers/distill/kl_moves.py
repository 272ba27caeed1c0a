"""F-DISTILL-KL-MOVES-001: ten steps reduce the divergence between student and teacher."""

import math

from falsifiers.distill.measuring.answers import measure_answers
from falsifiers.distill.measuring.held_out import HeldOut, evaluate
from falsifiers.distill.running.training import train
from falsifiers.distill.subject import Distillation, Run
from harness import Trial, propagates


def falsify(trial: Trial[Distillation]) -> None:
    """Measure the divergence on held-out text before and after; compare the first reported loss with our own."""
    held_out = HeldOut.of(trial)
    before = evaluate(trial, held_out)
    training = train(trial)
    after = evaluate(trial, held_out)
    measure_answers(trial, held_out)
    trial.measure(
        steps_executed=training.steps,
        initial_kl=before.kl,
        final_kl=after.kl,
        initial_loss=before.loss,
        reported_initial_loss=_first_loss(training.run),
        teacher_drift=(after.teacher_logits - before.teacher_logits).abs().max(),
    )


@propagates
def _first_loss(run: Run) -> float:
    """The reported loss of the first step; NaN if there is none."""
    return run.losses[0] if run.losses else math.nan
