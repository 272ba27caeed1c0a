"""F-DISTILL-SMOKE-001: fifty distillation steps finish and the student learns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from falsifiers.distill.held_out import HeldOut, evaluate, foresight
from falsifiers.distill.subject import Distillation
from falsifiers.distill.watch import StepWatch, read_back
from harness import Trial

__all__ = ["falsify"]

_TAIL = 5  # reported losses that are averaged at the end, where single batches scatter


def falsify(trial: Trial[Distillation]) -> None:
    """Train for the profile's steps; we, not the subject, count them and evaluate on held-out text before and after."""
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
        steps_reported=run.steps,
        weight_changes=watch.changes,
        reported_losses=run.losses,
        reported_initial_loss=_mean(run.losses[:1]),
        reported_final_loss=_mean(run.losses[-_TAIL:]),
        initial_loss=before.loss,
        final_loss=after.loss,
        initial_kl=before.kl,
        final_kl=after.kl,
        final_misplaced_kl=after.misplaced_kl,
        final_foresight=foresight(trial, held_out.first_sequence),
        unmoved=watch.unmoved,
        blind_kl=before.blind_kl,
        initial_cross_entropy=before.cross_entropy,
        final_cross_entropy=after.cross_entropy,
        blind_cross_entropy=held_out.blind_cross_entropy,
        teacher_cross_entropy=before.teacher_cross_entropy,
        teacher_drift=(teacher_after - teacher_before).abs().max(),
        corpus_digest=held_out.digest,
    )


def _mean(losses: Sequence[float]) -> float:
    """The mean, or NaN of nothing: a run that reports no loss fails, it does not go unmeasured."""
    return fmean(losses) if losses else math.nan
