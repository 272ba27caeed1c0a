"""F-PD-IMPMIN-001: importance minimality has its formula's value and gradient, with eps inside and p annealed."""

from __future__ import annotations

import torch
from torch import Tensor

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle import terms
from falsifiers.param_decomp.subject import Decomposition
from falsifiers.param_decomp.watching import measure_steps
from harness import Trial
from harness.authoring.shadow_step import difference, relative_difference

__all__ = ["falsify"]


def falsify(trial: Trial[Decomposition]) -> None:
    """Ask for both terms of importances of our own over the whole run, and train on them alone."""
    config = configuration_of(trial.parameters)
    due = (0, config.steps // 3, config.steps - 1, config.steps)
    with trial.subject_fault():
        powers = [float(trial.subject.p(step)) for step in range(config.steps + 1)]
    right = [config.p_start + (config.p_end - config.p_start) * step / config.steps for step in range(config.steps + 1)]
    trial.measure(
        first_p=powers[0],
        last_p=powers[-1],
        p_errors=[abs(seen - one) for seen, one in zip(powers, right, strict=True)],
    )
    upper = _importances(trial)
    values: list[float] = []
    gradients: list[float] = []
    for step in due:
        leaves, seen = _asked(trial, upper, step)
        ours = {name: one.clone().requires_grad_() for name, one in upper.items()}
        for told, expected in zip(seen, terms.minimality(ours, right[step], config.eps), strict=True):
            values.append(difference("", float(told.detach()), float(expected.detach())).ratio)
            pulled = torch.autograd.grad(told, list(leaves.values()), retain_graph=True)
            pushed = torch.autograd.grad(expected, list(ours.values()), retain_graph=True)
            gradients += [
                relative_difference(one.cpu(), other, other) for one, other in zip(pulled, pushed, strict=True)
            ]
    trial.measure(value_errors=values, gradient_errors=gradients)
    measure_steps(trial, trial.subject, due[:-1])


def _importances(trial: Trial[Decomposition]) -> dict[str, Tensor]:
    """Importances of every site: a third exactly 0, and some above 1, where the upper gate leaks."""
    config = configuration_of(trial.parameters)
    generator = torch.Generator().manual_seed(trial.seed)
    shape = (config.batch, config.sequence, config.components)
    return {
        name: (1.6 * torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5).clamp_min(0.0)
        for name in trial.subject.sites
    }


def _asked(
    trial: Trial[Decomposition], upper: dict[str, Tensor], step: int
) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
    """The leaves that the subject got, and its two terms."""
    with trial.subject_fault():
        leaves = {name: one.to(trial.device).clone().requires_grad_() for name, one in upper.items()}
        return leaves, trial.subject.frequencies(leaves, step)
