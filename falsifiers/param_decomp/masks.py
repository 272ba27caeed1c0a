"""F-PD-MASK-001: an importance of 1 leaves a site as it was, one of 0 leaves it to the source."""

from __future__ import annotations

import torch
from torch import Tensor

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle.model import site_output
from falsifiers.param_decomp.oracle.step import Shadow, source_of
from falsifiers.param_decomp.oracle.terms import lower_gate
from falsifiers.param_decomp.statistics import share_repeated, uniform_p
from falsifiers.param_decomp.subject import Decomposition
from falsifiers.param_decomp.watching import Watched, measure_steps
from harness import Trial
from harness.authoring.shadow_step import relative_difference

__all__ = ["falsify"]

_VISIBLE = 0.5
"""A source is read where an importance is at most this: there a mask shows it to rounding."""


def falsify(trial: Trial[Decomposition]) -> None:
    """Ask each site on importances of our own, and look at every site call of executed steps."""
    generator = torch.Generator().manual_seed(trial.seed)
    found: dict[str, list[float]] = {"open_errors": [], "closed_errors": [], "mixed_errors": []}
    for name in trial.subject.sites:
        for case, error in _site_errors(trial, name, generator).items():
            found[f"{case}_errors"].append(error)
    trial.measure(**found)
    outputs, masks, sources, deltas = [], [], list[Tensor](), list[Tensor]()
    for watched, expected in measure_steps(trial, trial.subject, range(trial.parameters["watched"])):
        lower = {name: lower_gate(one) for name, one in expected.logits.items()}
        outputs += _output_errors(watched)
        masks += _adversarial_mask_errors(watched, expected, lower)
        for forward in watched.stochastic(len(lower)):
            for call in forward.calls:
                drawn = source_of(call.masking.mask.double(), lower[call.site])
                sources.append(drawn[lower[call.site] <= _VISIBLE])
                deltas.append(call.masking.delta.double().flatten())
    drawn, residual = torch.cat(sources), torch.cat(deltas)
    trial.measure(
        output_errors=outputs,
        adversarial_mask_errors=masks,
        smallest_source=min(drawn.min(), residual.min()),
        largest_source=max(drawn.max(), residual.max()),
        source_p=uniform_p(drawn),
        delta_p=uniform_p(residual),
        repeated_sources=share_repeated(drawn),
        repeated_deltas=share_repeated(residual),
    )


def _site_errors(trial: Trial[Decomposition], name: str, generator: torch.Generator) -> dict[str, float]:
    """The errors of a site that is fully open, closed but for the residual, and in between."""
    config = configuration_of(trial.parameters)
    weight = trial.subject.target_weights()[name].detach().cpu().double()
    v, u = (trial.subject.components()[f"{name}.{which}"].detach().cpu().double() for which in "VU")
    lead = (config.batch, config.sequence)
    x, lower, source = (
        torch.randn(*lead, weight.shape[0], generator=generator, dtype=torch.float64),
        torch.rand(*lead, config.components, generator=generator, dtype=torch.float64),
        torch.rand(*lead, config.components + 1, generator=generator, dtype=torch.float64),
    )
    unmasked = torch.cat((source[..., :-1], torch.ones(*lead, 1, dtype=torch.float64)), dim=-1)
    silent = torch.cat((torch.zeros_like(lower), source[..., -1:]), dim=-1)
    route = torch.rand(lead, generator=generator) < 0.5
    mixed = site_output(x, weight, v, u, (lower + (1 - lower) * source[..., :-1], source[..., -1], route))
    residual = (x @ (weight - v @ u)) * source[..., -1:]
    cases = {
        "open": (torch.ones_like(lower), unmasked, None, x @ weight),
        "closed": (torch.zeros_like(lower), silent, None, residual),
        "mixed": (lower, source, route, mixed),
    }
    errors = {}
    for case, (importance, drawn, routed, right) in cases.items():
        with trial.subject_fault(), torch.no_grad():
            given = (None if one is None else one.to(trial.device) for one in (importance, drawn, routed))
            output = trial.subject.sites[name](x.to(trial.device), trial.subject.masking(*given)).cpu()
        errors[case] = relative_difference(output, right, right)
    return errors


def _output_errors(watched: Watched) -> list[float]:
    """Of each masked forward, the largest error of a site's output, for the masking that it was called with."""
    before = watched.before
    found = []
    for forward in watched.forwards:
        errors = []
        for call in forward.calls:
            v, u = (before.components[f"{call.site}.{which}"] for which in "VU")
            masking = (call.masking.mask.double(), call.masking.delta.double(), call.masking.route)
            right = site_output(call.x, before.target[call.site], v, u, masking)
            errors.append(relative_difference(call.output, right, right))
        found += [max(errors)] if errors else []
    return found


def _adversarial_mask_errors(watched: Watched, expected: Shadow, lower: dict[str, Tensor]) -> list[float]:
    """Of each adversarial forward, the largest difference of a mask from that of the sources as they must be."""
    found = []
    for forward, sources in zip(watched.adversarial(len(lower)), expected.ascents, strict=False):
        errors = [torch.zeros((), dtype=torch.float64)]
        for call in forward.calls:
            importance, source = lower[call.site], sources[call.site]
            mask = importance + (1 - importance) * source[..., :-1]
            errors.append((call.masking.mask.double() - mask).abs().max())
            errors.append((call.masking.delta.double() - source[..., -1]).abs().max())
        found.append(float(torch.stack(errors).max()))
    return found
