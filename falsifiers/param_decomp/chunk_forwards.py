"""F-PD-CHUNKS-001: a step makes one stochastic forward for each chunk of nine sites and each sample."""

from __future__ import annotations

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import drawn_steps, measure_steps, wrong_chunks
from harness import Trial

__all__ = ["falsify"]


def falsify(trial: Trial[Trainer]) -> None:
    """Train, count the masked forwards of each step, and look which sites each of them masks."""
    config = configuration_of(trial.parameters)
    forwards, wrong = [], list[str]()
    for watched, _ in measure_steps(trial, trial.subject, drawn_steps(trial)):
        forwards.append(len(watched.stochastic(len(trial.subject.sites))))
        wrong += wrong_chunks(config, watched)
    trial.measure(forwards=forwards, wrong_chunks=wrong)
