"""F-PD-PPGD-001: adversarial sources ascend the loss, persist across steps, and stay in [0, 1]."""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle.model import clean_forward
from falsifiers.param_decomp.oracle.step import adversarial_value, importances
from falsifiers.param_decomp.subject import Trainer
from falsifiers.param_decomp.watching import Watched, drawn_steps, measure_steps, watched_step
from harness import Trial


def falsify(trial: Trial[Trainer]) -> None:
    """Run the first step, and another one several times on one batch; the falsifier evaluates the loss."""
    repeated = [0, *[drawn_steps(trial)[-1]] * trial.parameters["watched"]]
    pairs = measure_steps(trial, trial.subject, repeated)
    watched = [step for step, _ in pairs]
    sources = torch.cat([step.after[f"{name}.source"].flatten() for step in watched for name in step.before.sources])
    counts = [
        _count(step.slots, name) - _count(step.before.slots, name) for step in watched for name in step.before.sources
    ]
    with trial.subject_fault():  # behind a head of zeros, sources have no gradient; Adam counts the ascents
        flat = type(trial.subject)(trial.setting)
        flat.target_weights()["head"].zero_()
    still = watched_step(trial, flat, 0)
    counts += [_count(still.slots, name) for name in still.before.sources]
    trial.measure(
        rises=[_rise(trial, step) for step in watched],
        forwards=[len(step.adversarial(len(trial.subject.sites))) for step in watched],
        smallest_source=sources.min(),
        largest_source=sources.max(),
        sources_at_an_end=int(((sources <= 0) | (sources >= 1)).sum()),
        updates=counts,
        changed_between_steps=[
            float((earlier.after[f"{name}.source"] - later.before.sources[name]).abs().max())
            for earlier, later in pairwise(watched)
            for name in later.before.sources
        ],
    )


def _count(slots: Mapping[str, Mapping[str, Tensor]], site: str) -> int:
    """The number of Adam's updates of a site's source."""
    return int(slots[f"{site}.source"]["step"]) if f"{site}.source" in slots else 0


def _rise(trial: Trial[Trainer], watched: Watched) -> float:
    """The increase of the adversarial loss by the sources after the step, with the weights from before it."""
    config = configuration_of(trial.parameters)
    before = watched.before
    with torch.no_grad():
        clean, _ = clean_forward(config, before.target, before.tokens)
        lower = importances(config, before)
        after = {name: watched.after[f"{name}.source"] for name in before.sources}
        values = [
            adversarial_value(config, before, before.components, lower, sources, clean)
            for sources in (before.sources, after)
        ]
    return float(values[1] - values[0])
