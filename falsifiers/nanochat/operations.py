"""F-GB10-FLOPS-001: the formula for operations per token counts the work of forward and backward pass.

The pass is nanochat's: loss and gradients are compared with its formulas in float64, and the initial weights with its
scales. The order of the model's parameters is: the embedding; query, key, value, output, up and down of each block; the
head.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from falsifiers.nanochat.oracle.transformer import mean_loss
from falsifiers.nanochat.subject import Accounts
from harness import Trial

SIZES = {"layers": (1, 3), "width": (1, 16), "heads": (1, 4), "vocabulary": (2, 400), "sequence": (1, 48)}
"""The smallest and largest sizes that are drawn. A drawn width is that of half a head."""
_LARGE = {"layers": 2, "width": 64, "heads": 2, "vocabulary": 128, "sequence": 8}
"""A shape whose smallest matrix has 4,096 numbers, so that their root mean square is known to 1 %."""
_ROWS = 2
_TINY = 1e-300
_SHARP = 4.0
"""The factor by which the head exceeds one whose logits have variance 1, so that the cap on logits shows."""
_STEEP = 8.0
"""The factor by which feed-forward activations exceed usual ones, so that a cap on them shows."""


def falsify(trial: Trial[Accounts]) -> None:
    """Count the operations of real steps of random shapes, and of d20 on tensors without data."""
    stated = {name: trial.parameters[name] for name in SIZES}
    with trial.subject_fault():
        formula = trial.subject.flops_per_token(stated)
    counted = _counted(trial, stated, "meta")["counted"]
    trial.measure(
        stated_ratio=formula / trial.parameters["stated_flops_per_token"],
        counted_ratio=counted / trial.parameters["stated_flops_per_token"],
    )

    with trial.subject_fault():
        first = [parameter.detach().double() for parameter in trial.subject.model(_LARGE).parameters()]
    trial.measure(**_first_scales(first))

    def check(case: Mapping[str, Any]) -> dict[str, Any]:
        shape = {**case, "width": 2 * case["width"] * case["heads"]}
        measured = _counted(trial, shape, trial.device)
        counted = measured.pop("counted")
        with trial.subject_fault():
            return {"errors": abs(trial.subject.flops_per_token(shape) / counted - 1.0), **measured}

    cases = st.fixed_dictionaries({name: st.integers(*bounds) for name, bounds in SIZES.items()})
    trial.measure(cases=trial.search(cases, check, examples=trial.parameters["cases"]))
    trial.resolve(device=torch.device(trial.device).type)


def _counted(trial: Trial[Accounts], shape: Mapping[str, int], device: str) -> dict[str, float]:
    """Return the operations per token of one step; with data, also its loss and the errors of its results.

    Attention is counted with plain products, because fused kernels recompute parts of it in the backward pass.
    """
    generator = torch.Generator().manual_seed(trial.seed)
    with torch.device(device):
        tokens = torch.arange(_ROWS * shape["sequence"]).view(_ROWS, -1) % shape["vocabulary"]
        targets = tokens.flip(1)
        if not tokens.is_meta:
            targets[0, 0] = -1
        with trial.subject_fault():
            model = trial.subject.model(shape)
            matrices = [] if tokens.is_meta else _drawn(list(model.parameters()), generator)
            with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
                loss = model(tokens, targets)
                loss.backward()
    counted = {"counted": counter.get_total_flops() / tokens.numel()}
    if tokens.is_meta:
        return counted
    right = mean_loss(matrices, shape["heads"], tokens.cpu(), targets.cpu())
    true = torch.cat([gradient.flatten() for gradient in torch.autograd.grad(right, matrices)])
    gradients = torch.cat([_gradient(parameter) for parameter in model.parameters()])
    error = float((gradients - true).norm()) if gradients.shape == true.shape else math.inf
    size = max(float(right.detach()), 0.0)
    return {
        **counted,
        "losses": float(loss.detach()),
        "loss_errors": abs(float(loss.detach()) - size) / max(1.0, size),
        # A gradient is 1 minus a probability. For a loss near 0 its leading digits cancel.
        "gradient_errors": error * min(1.0, size) / max(float(true.norm()), _TINY),
    }


def _first_scales(matrices: list[Tensor]) -> dict[str, list[float]]:
    """Return the root mean squares of initial matrices, divided by nanochat's scale if it draws them.

    Its embedding has a standard deviation of 1; query, key, value and up have 1 over the root of their columns.
    """
    sizes = [float(matrix.square().mean().sqrt()) for matrix in matrices]
    embedding, inner, head = sizes[0], sizes[1:-1], sizes[-1]
    root = _LARGE["width"] ** 0.5
    drawn = [size * root for place, size in enumerate(inner) if place % 6 not in (3, 5)]
    return {"first_scales": [embedding, *drawn], "first_zeros": [*inner[3::6], *inner[5::6], head]}


def _drawn(parameters: list[torch.nn.Parameter], generator: torch.Generator) -> list[Tensor]:
    """Draw all matrices, because zeros hide what a step does. Return them in float64."""
    embedding, *inner, head = parameters
    scales = {4: _STEEP, 5: _STEEP**-2}  # the positions of up and down in a block
    inside = [scales.get(place % 6, 1.0) * matrix.shape[1] ** -0.5 for place, matrix in enumerate(inner)]
    sizes = [1.0, *inside, _SHARP * head.shape[1] ** -0.5]
    with torch.no_grad():
        for matrix, size in zip((embedding, *inner, head), sizes, strict=True):
            matrix.copy_(torch.randn(matrix.shape, generator=generator, device="cpu") * size)
    return [parameter.detach().double().cpu().requires_grad_() for parameter in parameters]


def _gradient(parameter: torch.nn.Parameter) -> Tensor:
    """Return the gradient of a parameter; zeros if it has none."""
    gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    return gradient.double().cpu().flatten()
