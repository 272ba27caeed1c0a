"""F-PD-MASK-001: an importance of 1 leaves a site unchanged; at 0 the source determines the mask."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle.model import site_output
from falsifiers.param_decomp.oracle.step import Shadow, shadow, source_of
from falsifiers.param_decomp.oracle.terms import lower_gate
from falsifiers.param_decomp.statistics import share_repeated, uniform_p
from falsifiers.param_decomp.subject import Decomposition
from falsifiers.param_decomp.watching import Watched, drawn_steps, measure_steps, watched_step
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import VALUES_AND_STATE, StateCheck

_VISIBLE = 0.5
"""A source is derived from a mask if the importance is at most this; above, rounding hides it."""


def falsify(trial: Trial[Decomposition]) -> None:
    """Ask each site with given importances, and check every site call of executed steps."""
    trial.measure(violations=_state_check(trial).violations())
    sources, deltas = list[Tensor](), list[Tensor]()
    with trial.subject_fault():  # a subject with another seed must draw other numbers
        other = type(trial.subject)(replace(trial.setting, seed=trial.seed + 1))
    for watched, expected in (*measure_steps(trial, trial.subject, drawn_steps(trial)), *_shadowed(trial, other)):
        lower = {name: lower_gate(logit) for name, logit in expected.logits.items()}
        for forward in watched.stochastic(len(lower)):
            for call in forward.calls:
                drawn = source_of(call.masking.mask.double(), lower[call.site])
                sources.append(drawn[lower[call.site] <= _VISIBLE])
                deltas.append(call.masking.delta.double().flatten())
    drawn, residual = torch.cat(sources), torch.cat(deltas)
    trial.measure(
        smallest_source=min(drawn.min(), residual.min()),
        largest_source=max(drawn.max(), residual.max()),
        source_p=uniform_p(drawn),
        delta_p=uniform_p(residual),
        repeated_sources=share_repeated(drawn),
        repeated_deltas=share_repeated(residual),
    )


def _state_check(trial: Trial[Decomposition]) -> StateCheck:
    """Checks that a site computes the claim's formula for importances and sources of any size."""
    subject, weights = trial.subject, trial.subject.target_weights()

    def output(x: Tensor, lower: Tensor, source: Tensor, route: Tensor, *, site: str) -> Tensor:
        masking = subject.masking(lower, source, route)
        subject.masking(1 - lower, source)  # the second forward must not change the first one's masks
        return subject.sites[site](x, masking)

    def formula(x: Tensor, lower: Tensor, source: Tensor, route: Tensor, *, site: str) -> Tensor:
        v, u = (subject.components()[f"{site}.{which}"].detach().cpu().double() for which in "VU")
        mask = lower + (1 - lower) * source[..., :-1]
        return site_output(x, weights[site].detach().cpu().double(), v, u, (mask, source[..., -1], route))

    def arguments(draw: Draw) -> Any:
        site = draw.choice("site", *subject.sites)
        rows, sequence, width = draw.size("rows"), draw.size("sequence"), weights[site].shape[0]
        components = configuration_of(trial.parameters).components
        tensors = (draw.tensor(rows, sequence, size) for size in (width, components, components + 1))
        return (*tensors, draw.mask(rows, sequence)), {"site": site}

    return StateCheck(trial, output, formula, arguments, VALUES_AND_STATE, dtypes=("float64",))


def _shadowed(trial: Trial[Decomposition], subject: Decomposition) -> list[tuple[Watched, Shadow]]:
    """The first step of another subject, and the expected step."""
    watched = watched_step(trial, subject, 0)
    drawn = [forward.masks for forward in watched.stochastic(len(subject.sites))]
    return [(watched, shadow(configuration_of(trial.parameters), watched.before, drawn))]
