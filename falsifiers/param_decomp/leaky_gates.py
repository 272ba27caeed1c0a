"""F-PD-LEAKY-001: the gates of causal importance leak exactly the gradients that SPEC.md states."""

from functools import partial

import torch
from torch import Tensor

from falsifiers.param_decomp.oracle import terms
from falsifiers.param_decomp.subject import Decomposition
from falsifiers.param_decomp.watching import drawn_steps, measure_steps
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import VALUES_AND_STATE, StateCheck

Four = tuple[Tensor, Tensor, Tensor, Tensor]
"""The lower and the upper gate, and the gradient of each."""

_LOGITS = {
    "far_below": (-7.5, -1.0),
    "below": (-0.25, -1e-9),
    "zero": (0.0,),
    "within": (1e-9, 0.5, 1 - 1e-9),
    "one": (1.0,),
    "above": (1 + 1e-9, 1.5, 40.0),
}
"""Logits of each region; the branches meet at exactly 0 and 1."""


def falsify(trial: Trial[Decomposition]) -> None:
    """Ask both gates in every region with upstream gradients of both signs, and train with logits of all regions."""
    state = StateCheck(
        trial, partial(_answers, trial.subject), _formulas, _arguments, VALUES_AND_STATE, differentiable=False
    )
    errors: dict[str, dict[str, float]] = {"lower": {}, "upper": {}, "lower_gradient": {}, "upper_gradient": {}}
    for region, numbers in _LOGITS.items():
        logits = torch.tensor(numbers, dtype=torch.float64)
        for sign, name in ((1.0, "rising"), (-1.0, "falling")):
            upstream = torch.full_like(logits, sign)
            right = _formulas(logits, upstream)
            for kind, seen, expected in zip(errors, _asked(trial, logits, sign), right, strict=True):
                errors[kind][f"{region}, {name}"] = float((seen - expected).abs().max())
    trial.measure(**{f"{kind}_errors": largest for kind, largest in errors.items()}, violations=state.violations())
    pairs = measure_steps(trial, trial.subject, drawn_steps(trial))
    logits = torch.cat([logit.flatten() for _, expected in pairs for logit in expected.logits.values()])
    shares = {"below": logits <= 0, "within": (logits > 0) & (logits <= 1), "above": logits > 1}
    trial.measure(trained_logits={name: int(where.sum()) for name, where in shares.items()})


def _asked(trial: Trial[Decomposition], logits: Tensor, sign: float) -> Four:
    """The answers for an upstream gradient of `sign`, on the trial's device."""
    with trial.subject_fault():
        logits = logits.to(trial.device).clone()
        low, high, *gradients = _answers(trial.subject, logits, torch.full_like(logits, sign))
        if low.shape != logits.shape or high.shape != logits.shape:
            raise ValueError(f"gates of {tuple(logits.shape)} are {tuple(low.shape)} and {tuple(high.shape)}")
        return low.cpu(), high.cpu(), gradients[0].cpu(), gradients[1].cpu()


def _answers(subject: Decomposition, logits: Tensor, above: Tensor) -> Four:
    """The values of both gates without a graph, and the gradient of each, for an upstream gradient."""
    low, high = subject.gates(logits)
    leaf = logits.clone().requires_grad_()
    gradients = (torch.autograd.grad(gate, leaf, above)[0] for gate in subject.gates(leaf))
    return low, high, *gradients


def _formulas(logits: Tensor, above: Tensor) -> Four:
    """The same values and gradients by the oracle."""
    nothing = torch.zeros_like(above)
    gradients = (terms.gate_gradient(logits, *pair) for pair in ((above, nothing), (nothing, above)))
    return terms.lower_gate(logits), terms.upper_gate(logits), *gradients


def _arguments(draw: Draw) -> tuple[Tensor, Tensor]:
    """Logits [rows, sequence, C], and an upstream gradient."""
    shape = draw.size("rows"), draw.size("sequence"), draw.size("components")
    return draw.tensor(*shape), draw.tensor(*shape)
