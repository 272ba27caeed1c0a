"""F-DISTILL-SMOKE-001: fifty distillation steps finish and the student learns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from falsifiers.distill.measuring.answers import measure_answers
from falsifiers.distill.measuring.held_out import HeldOut, evaluate, foresight
from falsifiers.distill.running.training import train
from falsifiers.distill.subject import Distillation
from harness import Trial, look

__all__ = ["falsify"]

_TAIL = 5  # reported losses that are averaged at the end, where single batches scatter


def falsify(trial: Trial[Distillation]) -> None:
    """Train for the profile's steps; we, not the subject, count them and evaluate on held-out text before and after."""
    held_out = HeldOut.of(trial)
    before = evaluate(trial, held_out)
    trial.measure(
        blind_cross_entropy=before.blind_cross_entropy,
        corpus_digest=before.corpus_digest,
        initial_loss=before.loss,
        initial_kl=before.kl,
        initial_cross_entropy=before.cross_entropy,
        blind_kl=before.blind_kl,
        teacher_cross_entropy=before.teacher_cross_entropy,
    )
    training = train(trial)
    run = training.run
    trial.measure(
        steps_executed=training.steps,
        steps_reported=run.steps,
        reported_losses=run.every_loss,
        reported_initial_loss=_mean(run.losses[:1]),
        reported_final_loss=_mean(run.losses[-_TAIL:]),
        weight_changes=training.changes,
        unmoved=training.unmoved,
    )
    after = evaluate(trial, held_out)
    measure_answers(trial, held_out)
    trial.measure(
        final_loss=after.loss,
        final_kl=after.kl,
        final_misplaced_kl=after.misplaced_kl,
        final_foresight=foresight(trial, held_out.first_sequence),
        final_cross_entropy=after.cross_entropy,
        teacher_drift=(after.teacher_logits - before.teacher_logits).abs().max(),
    )


@look
def _mean(losses: Sequence[float]) -> float:
    """The mean. NaN if there is none: a run that reports no loss fails."""
    return fmean(losses) if losses else math.nan
