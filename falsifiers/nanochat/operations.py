"""F-GB10-FLOPS-001: the formula for operations a token counts what forward and backward pass do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from falsifiers.nanochat.subject import Accounts
from harness import Trial

__all__ = ["SIZES", "falsify"]

SIZES = {"layers": (1, 3), "width": (1, 16), "heads": (1, 4), "vocabulary": (2, 400), "sequence": (1, 48)}
"""The smallest and largest sizes that are drawn. A drawn width is that of half a head."""
_ROWS = 2


def falsify(trial: Trial[Accounts]) -> None:
    """Count the operations of real steps of drawn shapes, and of d20 on tensors without data."""
    stated = {name: trial.parameters[name] for name in SIZES}
    with trial.subject_fault():
        formula = trial.subject.flops_per_token(stated)
    counted, _ = _counted(trial, stated, "meta")
    trial.measure(
        stated_ratio=formula / trial.parameters["stated_flops_per_token"],
        counted_ratio=counted / trial.parameters["stated_flops_per_token"],
    )

    def check(case: Mapping[str, Any]) -> dict[str, Any]:
        shape = {**case, "width": 2 * case["width"] * case["heads"]}
        counted, loss = _counted(trial, shape, trial.device)
        with trial.subject_fault():
            return {"errors": abs(trial.subject.flops_per_token(shape) / counted - 1.0), "losses": loss}

    cases = st.fixed_dictionaries({name: st.integers(*bounds) for name, bounds in SIZES.items()})
    trial.measure(cases=trial.search(cases, check, examples=trial.parameters["cases"]))
    trial.resolve(device=torch.device(trial.device).type)


def _counted(trial: Trial[Accounts], shape: Mapping[str, int], device: str) -> tuple[float, float]:
    """Return the operations a token of one step, and its loss; 0 on tensors without data.

    Attention by plain products is counted, because fused kernels compute parts of it again in the backward pass.
    """
    with torch.device(device):
        tokens = torch.arange(_ROWS * shape["sequence"]).view(_ROWS, -1) % shape["vocabulary"]
        with trial.subject_fault():
            model = trial.subject.model(shape)
            with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
                loss = model(tokens, tokens)
                loss.backward()
    return counter.get_total_flops() / tokens.numel(), 0.0 if loss.is_meta else float(loss.detach())
