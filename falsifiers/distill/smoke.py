"""F-DISTILL-SMOKE-001: fifty distillation steps finish and the student learns."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from torch import Tensor

from falsifiers.distill.measuring.answers import measure_answers
from falsifiers.distill.measuring.held_out import HeldOut, lookahead
from falsifiers.distill.measuring.scores import held_out_of, scores
from falsifiers.distill.measuring.weight_files import weight_files
from falsifiers.distill.oracle.answers import IndependentModel, in_tolerances
from falsifiers.distill.running.shown import shown
from falsifiers.distill.running.training import train
from falsifiers.distill.subject import Distillation
from harness import Trial, Unobserved, first_observed, propagates, provided

_TAIL = 5  # reported losses that are averaged at the end, because single batches scatter


def falsify(trial: Trial[Distillation]) -> None:
    """Train; the falsifier counts the steps and evaluates on held-out text before and after."""
    in_process = weight_files(trial.subject).in_memory
    held_out = held_out_of(trial, in_process)
    before = scores(trial, held_out, in_process)
    trial.measure(
        blind_cross_entropy=held_out.blind_cross_entropy,
        corpus_digest=held_out.digest,
        initial_loss=before.loss,
        initial_as_reported=before.as_reported,
        initial_kl=before.kl,
        initial_cross_entropy=before.of_a_fresh_student,
        initial_logits_error=_initial_error(trial, held_out, in_process),
        blind_kl=provided(in_process, before.blind_kl),
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
        unmoved=first_observed(shown(trial.subject, "unmoved"), training.unmoved),
    )
    after = scores(trial, held_out, in_process)
    trial.measure(
        final_loss=after.loss,
        final_as_reported=after.as_reported,
        final_kl=after.kl,
        final_misplaced_kl=provided(in_process, after.misplaced_kl),
        final_cross_entropy=after.cross_entropy,
        teacher_drift=provided(in_process, (after.teacher_logits - before.teacher_logits).abs().max()),
    )
    _measure_forward_passes(trial, held_out, in_process)


def _initial_error(trial: Trial[Distillation], held_out: HeldOut, in_process: bool) -> float:
    """The distance of the student's logits from the independent model's before the run, in tolerances.

    The activations of a fresh student are small, so a wrong epsilon shows, for example, which a trained student hides.
    """
    if isinstance(in_process, Unobserved):
        return in_process
    tokens = held_out.first_sequence
    with trial.subject_fault():
        weights, logits = trial.subject.student_weights(), trial.subject.student_logits(tokens)
    return _error(weights, logits, tokens, trial)


@propagates
def _error(weights: Mapping[str, Tensor], logits: Tensor, tokens: Tensor, trial: Trial[Distillation]) -> float:
    expected = IndependentModel(trial.parameters, trial.device).answer(weights, tokens)
    return in_tolerances(logits, expected, trial.parameters["dtype"])


def _measure_forward_passes(trial: Trial[Distillation], held_out: HeldOut, in_process: bool) -> None:
    """Judge the subject's own forward passes; not measured if the falsifier makes them itself."""
    if isinstance(in_process, Unobserved):
        trial.measure(student_logits_error=in_process, teacher_logits_error=in_process, final_foresight=in_process)
        return
    measure_answers(trial, held_out)
    trial.measure(final_foresight=lookahead(trial, held_out.first_sequence))


@propagates
def _mean(losses: Sequence[float]) -> float:
    """The mean; NaN if there is no value, so that a run without a reported loss fails."""
    return fmean(losses) if losses else math.nan
