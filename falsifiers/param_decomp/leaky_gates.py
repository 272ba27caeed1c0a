"""F-PD-LEAKY-001: the gates of causal importance leak only the gradients that SPEC.md states."""

from __future__ import annotations

import torch
from torch import Tensor

from falsifiers.param_decomp.oracle import terms
from falsifiers.param_decomp.subject import Decomposition
from falsifiers.param_decomp.watching import measure_steps
from harness import Trial

__all__ = ["falsify"]

_LOGITS = {
    "far_below": (-7.5, -1.0),
    "below": (-0.25, -1e-9),
    "zero": (0.0,),
    "within": (1e-9, 0.5, 1 - 1e-9),
    "one": (1.0,),
    "above": (1 + 1e-9, 1.5, 40.0),
}
"""Logits of each region: the branches meet at exactly 0 and 1."""


def falsify(trial: Trial[Decomposition]) -> None:
    """Ask both gates in every region with upstream gradients of both signs, and train with logits in all of them."""
    errors: dict[str, dict[str, float]] = {"lower": {}, "upper": {}, "lower_gradient": {}, "upper_gradient": {}}
    for region, numbers in _LOGITS.items():
        logits = torch.tensor(numbers, dtype=torch.float64)
        nothing = torch.zeros_like(logits)
        for sign, name in ((1.0, "rising"), (-1.0, "falling")):
            upstream = torch.full_like(logits, sign)
            right = (
                terms.lower_gate(logits),
                terms.upper_gate(logits),
                terms.gate_gradient(logits, upstream, nothing),
                terms.gate_gradient(logits, nothing, upstream),
            )
            for kind, seen, expected in zip(errors, _asked(trial, logits, sign), right, strict=True):
                errors[kind][f"{region}, {name}"] = float((seen - expected).abs().max())
    trial.measure(**{f"{kind}_errors": found for kind, found in errors.items()})
    pairs = measure_steps(trial, trial.subject, range(trial.parameters["watched"]))
    logits = torch.cat([one.flatten() for _, expected in pairs for one in expected.logits.values()])
    shares = {"below": logits <= 0, "within": (logits > 0) & (logits <= 1), "above": logits > 1}
    trial.measure(trained_logits={name: int(where.sum()) for name, where in shares.items()})


def _asked(trial: Trial[Decomposition], logits: Tensor, sign: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The values of both gates, and their gradients, for an upstream gradient of `sign`, on the trial's device."""
    with trial.subject_fault():
        leaf = logits.to(trial.device).clone().requires_grad_()
        gates = trial.subject.gates(leaf)
        upstream = torch.full_like(leaf, sign)
        gradients = [torch.autograd.grad(gate, leaf, upstream, retain_graph=True)[0] for gate in gates]
        low, high = (one.detach().cpu() for one in gates)
        return low, high, gradients[0].cpu(), gradients[1].cpu()
