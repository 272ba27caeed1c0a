"""F-PD-COEFF-001: 1.5 times the mean over three chunks has the gradients of 0.5 times their sum."""

from dataclasses import replace

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle.step import shadow
from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import drawn_steps, resolve, watched_step
from harness import Trial
from harness.authoring.shadow_step import difference, differences


def falsify(trial: Trial[Trainer]) -> None:
    """Train, and compare each gradient with that of the sum over forwards with the coefficient of one chunk."""
    config = configuration_of(trial.parameters)
    forwards, total_errors, gradient_errors = [], [], []
    for step in drawn_steps(trial):
        watched = watched_step(trial, trial.subject, step)
        drawn = [forward.masks for forward in watched.stochastic(len(trial.subject.sites))]
        summed = replace(config, stochastic=trial.parameters["chunk_coefficient"] * len(drawn))
        expected = shadow(summed, watched.before, drawn)
        forwards.append(len(drawn))
        total = summed.stochastic * expected.terms["stochastic"]
        total_errors.append(difference("total", watched.reported["total"], total).ratio)
        all_differences = differences("gradient", watched.gradients, expected.gradients)
        gradient_errors.append(max(all_difference.ratio for all_difference in all_differences))
        trial.step(step, **watched.reported)
    trial.measure(forwards=forwards, total_errors=total_errors, gradient_errors=gradient_errors)
    resolve(trial, trial.subject)
