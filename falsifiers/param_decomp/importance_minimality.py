"""F-PD-IMPMIN-001: importance minimality has the value and the gradient of its formula, and p is annealed."""

from typing import Any

from torch import Tensor

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.oracle import terms
from falsifiers.param_decomp.subject import Decomposition
from falsifiers.param_decomp.watching import drawn_steps, measure_steps
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import VALUES_AND_STATE, StateCheck


def falsify(trial: Trial[Decomposition]) -> None:
    """Ask for both terms on given importances, and for p over the whole run; then train on the terms alone."""
    config, state = configuration_of(trial.parameters), _state_check(trial)
    with trial.subject_fault():
        powers = [float(trial.subject.p(step)) for step in range(config.steps + 1)]
    right = [config.p_start + (config.p_end - config.p_start) * step / config.steps for step in range(config.steps + 1)]
    trial.measure(
        first_p=powers[0],
        last_p=powers[-1],
        p_errors=[abs(seen - expected) for seen, expected in zip(powers, right, strict=True)],
        violations=state.violations(),
    )
    measure_steps(trial, trial.subject, sorted({*drawn_steps(trial), config.steps - 1}))


def _state_check(trial: Trial[Decomposition]) -> StateCheck:
    """Checks both terms of two sites."""
    config, sites = configuration_of(trial.parameters), list(trial.subject.sites)[:2]

    def asked(*upper: Tensor, step: int) -> tuple[Tensor, Tensor]:
        return trial.subject.frequencies(dict(zip(sites, upper, strict=True)), step)

    def formulas(*upper: Tensor, step: int) -> tuple[Tensor, Tensor]:
        p = config.p_start + (config.p_end - config.p_start) * step / config.steps
        return terms.minimality(dict(zip(sites, upper, strict=True)), p, config.eps)

    def arguments(draw: Draw) -> Any:
        shape = draw.size("rows"), draw.size("sequence"), draw.size("components")
        upper = tuple(draw.tensor(*shape, positive=True) for _ in sites)
        return upper, {"step": draw.choice("step", config.steps // 2, 1, config.steps)}

    return StateCheck(trial, asked, formulas, arguments, VALUES_AND_STATE)
