"""F-PD-EPS-GRAD-001: eps 1e-6 instead of 1e-12 reduces the largest gradient of importance minimality 4,000 times."""

from dataclasses import replace

import torch

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.subject import Decomposition
from falsifiers.param_decomp.watching import measure_steps
from harness import Trial


def falsify(trial: Trial[Decomposition]) -> None:
    """Ask two trainers for the gradient at an importance of 0 and the last p, and train the one with the new eps."""
    config = configuration_of(trial.parameters)
    largest = {}
    for name in ("old_eps", "new_eps"):
        setting = replace(trial.setting, parameters={**trial.parameters, "eps": trial.parameters[name]})
        with trial.subject_fault():
            subject = type(trial.subject)(setting)
            shape = (config.batch, config.sequence, config.components)
            leaf = torch.zeros(shape, dtype=torch.float64, device=trial.device).requires_grad_()
            plain, _ = subject.frequencies({next(iter(subject.sites)): leaf}, config.steps)
            (gradient,) = torch.autograd.grad(plain, leaf)
        # A term is a mean over positions; times their number, it is the derivative of the power.
        largest[name] = float(gradient.abs().max()) * config.batch * config.sequence
    trial.measure(
        old_gradient=largest["old_eps"],
        new_gradient=largest["new_eps"],
        cut=largest["old_eps"] / largest["new_eps"] if largest["new_eps"] else float("inf"),
    )
    measure_steps(trial, trial.subject, [0, config.steps - 1])
