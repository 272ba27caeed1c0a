"""F-PD-CHUNKS-001: a step makes one stochastic forward for each chunk of nine sites and each sample."""

from __future__ import annotations

from dataclasses import replace

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import drawn_steps, masked_sites, measure_steps, misplaced, wrong_chunks
from harness import Trial

__all__ = ["falsify"]


def falsify(trial: Trial[Trainer]) -> None:
    """Train, count the masked forwards of each step, and look which sites each of them masks.

    In full, a step of the stated size follows, with tensors that have no data: 360 GB are on no machine, and which
    sites a forward masks depends on no number.
    """
    config = configuration_of(trial.parameters)
    if "at_size" in trial.parameters:
        _measure_at_size(trial)
    forwards, wrong = [], list[str]()
    for watched, _ in measure_steps(trial, trial.subject, drawn_steps(trial)):
        forwards.append(len(watched.stochastic(len(trial.subject.sites))))
        wrong += wrong_chunks(config, watched)
    trial.measure(forwards=forwards, wrong_chunks=wrong)


def _measure_at_size(trial: Trial[Trainer]) -> None:
    parameters = {"configuration": trial.parameters["at_size"]}
    with trial.subject_fault():
        subject = type(trial.subject)(replace(trial.setting, parameters=parameters))
        forwards = masked_sites(subject)
        widths = {subject.components()[f"{name}.V"].shape[1] for name in subject.sites}
    trial.measure(
        components_at_size=sorted(widths),
        sites_at_size=[len(sites) for sites in forwards],
        wrong_chunks_at_size=misplaced(configuration_of(parameters), forwards),
    )
