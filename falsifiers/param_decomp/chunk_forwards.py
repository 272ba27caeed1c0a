"""F-PD-CHUNKS-001: a step makes one stochastic forward for each chunk of nine sites and each sample."""

from __future__ import annotations

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle.model import site_names
from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import measure_steps
from harness import Trial

__all__ = ["falsify"]


def falsify(trial: Trial[Trainer]) -> None:
    """Train, count the masked forwards of each step, and look which sites each of them masks."""
    config = configuration_of(trial.parameters)
    names, size = site_names(config), config.sites_per_chunk
    expected = [names[start : start + size] for start in range(0, len(names), size) for _ in range(config.samples)]
    forwards, wrong = [], list[str]()
    for watched, _ in measure_steps(trial, trial.subject, range(trial.parameters["watched"])):
        stochastic = watched.stochastic(len(names))
        forwards.append(len(stochastic))
        for place, forward in enumerate(stochastic):
            live = [one.site for one in forward.calls]
            due = expected[place] if place < len(expected) else []
            # A target calls its sites in its own order; that each is called once is what counts.
            if sorted(live) != sorted(due):
                wrong.append(f"step {watched.before.step}, forward {place}: {len(live)} sites, first {live[:1]}")
    trial.measure(forwards=forwards, wrong_chunks=wrong)
