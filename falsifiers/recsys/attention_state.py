"""Checks that HSTU attention depends on its arguments alone and does not modify them."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from falsifiers.recsys.oracle.hstu import mask
from falsifiers.recsys.subject import Attention, Question
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import FEW_CALLS, STATE, StateCheck

_ALL = ("bfloat16", "float16", "float32")
"""The dtypes of k and v to refuse, or to convert, where q has another one."""
_SLACK = 8.0
"""Factor of the bound of a relation. Attention rounds its weights to the inputs' dtype; the claims bound that error."""


def state_check(trial: Trial[Attention]) -> StateCheck:
    """The check of the trial's attention. Call it before CUDA is used."""
    subject = trial.subject

    def attention(*tensors: Tensor | None, **numbers: Any) -> tuple[Tensor, ...]:
        answer = subject(_question(*tensors, **numbers))
        return answer.out, answer.dq, answer.dk, answer.dv

    relations = (*(STATE if trial.device.startswith("cuda") else FEW_CALLS), "larger")
    more: Any = {"dtypes": ("bfloat16", "float16"), "differentiable": False, "slack": _SLACK}
    return StateCheck(trial, attention, _definition, _arguments, relations, **more)


def _arguments(draw: Draw) -> Any:
    """Two sequences: q and k [rows, heads, width], v and the gradient of the output [rows, heads, value width]."""
    first, second = draw.size("first_length", least=3), draw.size("second_length", least=3)
    heads, width = draw.size("heads", usual=2, most=9), draw.choice("width", 32, 64)
    of_value = draw.choice("value_width", 64, 32)
    rows = first + second
    q = draw.tensor(rows, heads, width)
    k, v = (draw.tensor(rows, heads, size, refused=_ALL) for size in (width, of_value))
    grad_output = draw.upstream(rows, heads, of_value)
    offsets = torch.tensor([0, first, rows]).to(q.device)
    most = draw.choice("targets", 2, None), draw.choice("contextuals", 1, None)
    counts = [None if number is None else draw.counts(2, most=number) for number in most]
    return (q, k, v, grad_output, offsets, *counts), {
        "alpha": draw.choice("alpha", 0.25, 0.5),
        "scaling": draw.choice("scaling", 16, 8),
        "group": draw.choice("group", 1, 2, refused=(0,)),
        "reach": draw.choice("reach", 0, 2, refused=(-1,)),
        "full": draw.choice("full", 0, 1, refused=(-1,)),
    }


def _question(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grad_output: Tensor,
    offsets: Tensor,
    targets: Tensor | None,
    contextuals: Tensor | None,
    *,
    alpha: float,
    scaling: int,
    group: int,
    reach: int,
    full: int,
) -> Question:
    longest = int(offsets.diff().max())
    return Question(
        q, k, v, grad_output, offsets, longest, scaling, alpha, True, targets, group, contextuals, reach, full
    )


def _definition(*tensors: Any, **numbers: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """silu(alpha q k^T) v / scaling over the keys of the mask, and its gradients, one sequence after the other."""
    inputs, parts = _question(*tensors, **numbers), []
    q, k, v, grad_output = tensors[:4]
    alpha, scaling = inputs.alpha, inputs.scaling_seqlen
    for item, (start, end) in enumerate(pairwise(inputs.offsets.tolist())):
        q_rows, k_rows, v_rows, given = (tensor[start:end].transpose(0, 1) for tensor in (q, k, v, grad_output))
        seen = mask(inputs, item, end - start)
        scores = alpha * q_rows @ k_rows.transpose(1, 2)
        share = scores.sigmoid()
        weights = torch.where(seen, scores * share / scaling, 0.0)
        slopes = given @ v_rows.transpose(1, 2) * (share * (1.0 + scores * (1.0 - share))) * (alpha / scaling)
        slopes = torch.where(seen, slopes, 0.0)
        results = (weights @ v_rows, slopes @ k_rows, slopes.transpose(1, 2) @ q_rows, weights.transpose(1, 2) @ given)
        parts.append([result.transpose(0, 1) for result in results])
    out, dq, dk, dv = (torch.cat(ones) for ones in zip(*parts, strict=True))
    return out, dq, dk, dv
