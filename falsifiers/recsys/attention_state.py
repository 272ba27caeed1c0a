"""Whether HSTU attention depends on its arguments alone, and leaves them as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from falsifiers.recsys.subject import Attention, Question
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import FEW_CALLS, STATE, StateCheck

__all__ = ["state_check"]

_SLACK = 8.0
"""Times the bound of a relation. Attention rounds its weights to the inputs' dtype; the claims bound that error."""


def state_check(trial: Trial[Attention]) -> StateCheck:
    """The check of the trial's attention. Call it before CUDA is used."""
    subject = trial.subject

    def attention(
        q: Tensor, k: Tensor, v: Tensor, grad_output: Tensor, offsets: Tensor, *, alpha: float, scaling: int, reach: int
    ) -> tuple[Tensor, ...]:
        longest = int(offsets.diff().max())
        answer = subject(
            Question(q, k, v, grad_output, offsets, longest, scaling, alpha, True, None, 1, None, reach, 0)
        )
        return answer.out, answer.dq, answer.dk, answer.dv

    relations = STATE if trial.device.startswith("cuda") else FEW_CALLS
    more: Any = {"dtypes": ("bfloat16", "float16"), "differentiable": False, "slack": _SLACK}
    return StateCheck(trial, attention, _definition, _arguments, relations, **more)


def _arguments(draw: Draw) -> Any:
    """Two sequences: q and k [rows, heads, width], v and the gradient of the output [rows, heads, value width]."""
    first, second = draw.size("first_length"), draw.size("second_length")
    heads, width = draw.size("heads", usual=2, most=3), draw.choice("width", 32, 64)
    of_value = draw.choice("value_width", 64, 32)
    rows = first + second
    q, k = draw.tensor(rows, heads, width), draw.tensor(rows, heads, width)
    v, grad_output = draw.tensor(rows, heads, of_value), draw.tensor(rows, heads, of_value)
    offsets = torch.tensor([0, first, rows]).to(q.device)
    return (q, k, v, grad_output, offsets), {
        "alpha": draw.choice("alpha", 0.25, 0.5),
        "scaling": draw.choice("scaling", 16, 8),
        "reach": draw.choice("reach", 0, 2),
    }


def _definition(
    q: Tensor, k: Tensor, v: Tensor, grad_output: Tensor, offsets: Tensor, *, alpha: float, scaling: int, reach: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """silu(alpha q k^T) v / scaling over earlier keys, and its gradients, one sequence after the other."""
    parts = []
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        q_rows, k_rows, v_rows, given = (one[start:end].transpose(0, 1) for one in (q, k, v, grad_output))
        distance = torch.arange(end - start)[:, None] - torch.arange(end - start)
        seen = (distance >= 0) & ((distance <= reach) if reach else True)
        scores = alpha * q_rows @ k_rows.transpose(1, 2)
        share = scores.sigmoid()
        weights = torch.where(seen, scores * share / scaling, 0.0)
        slopes = given @ v_rows.transpose(1, 2) * (share * (1.0 + scores * (1.0 - share))) * (alpha / scaling)
        slopes = torch.where(seen, slopes, 0.0)
        found = (weights @ v_rows, slopes @ k_rows, slopes.transpose(1, 2) @ q_rows, weights.transpose(1, 2) @ given)
        parts.append([one.transpose(0, 1) for one in found])
    out, dq, dk, dv = (torch.cat(ones) for ones in zip(*parts, strict=True))
    return out, dq, dk, dv
