"""The inputs on which the loss is tried: shapes, temperatures, logit scales, dtypes, ignored positions.

A case is JSON; its tensors are drawn from its own seed, so it can be repeated exactly.

In half precision, hidden states and heads are small integers times a power of two. Every logit is then exact in any
order of summation. So the loss can be as exact as in float32, and a sum in half precision shows as an error.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.distill.kd.subject import IGNORED, Question

HALF = ("bfloat16", "float16")
"""The dtypes of half precision."""
_TEMPERATURES = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 10.0, 30.0, 100.0)
_ALPHAS = (0.0, 0.1, 0.3, 0.5, 0.7, 1.0)
_SCALES = (0.1, 1.0, 4.0, 10.0, 30.0)
_EXACT_WIDTH = 32
"""Up to this width, products of integers up to 4 and 2 sum to 256 at most."""
_FAVOURITE = 3.0
"""By how many scales the logit of a skewed row's most likely token exceeds the others, as in a trained model."""


def cases(parameters: Mapping[str, Any], dtypes: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Cases of up to the parameters' `largest_rows`, `largest_vocabulary` and `largest_width`.

    Temperature 1 and skewed logits come first, so shrinking ends there. At high temperatures the divergence is
    symmetric to second order, so exchanged teacher and student show only at low ones.
    """
    return st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(dtypes),
            "rows": st.integers(1, parameters["largest_rows"]),
            "vocabulary": st.integers(2, parameters["largest_vocabulary"]),
            "width": st.integers(1, parameters["largest_width"]),
            "temperature": st.sampled_from(_TEMPERATURES),
            "alpha": st.sampled_from(_ALPHAS),
            "scale": st.sampled_from(_SCALES),
            "skewed": st.sampled_from([True, False]),
            "alike": st.sampled_from([False, True]),
            "ignored": st.sampled_from([0.0, 0.25, 0.75, 1.0]),
            "upstream": st.sampled_from([1.0, 2.0, 0.125, -3.0]),
            "seed": st.integers(0, 2**16),
        }
    )


def first_cases(dtypes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Cases that every search begins with.

    Skewed logits at temperature 1; logits beyond 88; some and all positions ignored; a high temperature over a
    vocabulary beyond 16 bits; and many equal rows, whose terms have one sign, so that a sum in half precision stops
    growing.
    """
    skewed = {
        "rows": 2, "vocabulary": 8, "width": 4, "temperature": 1.0, "alpha": 0.3, "scale": 4.0,
        "skewed": True, "alike": False, "ignored": 0.0, "upstream": 1.0, "seed": 0,
    }  # fmt: skip
    large = {**skewed, "rows": 4, "width": 1, "scale": 30.0}
    masked = {**skewed, "rows": 8, "vocabulary": 24, "temperature": 4.0, "ignored": 0.25, "upstream": 2.0}
    hot = {**skewed, "rows": 7, "vocabulary": 70_001, "width": 2, "temperature": 100.0, "alpha": 0.1, "scale": 10.0}
    alike = {**skewed, "rows": 1000, "vocabulary": 33, "temperature": 2.0, "alike": True, "upstream": -3.0}
    nothing = {**masked, "ignored": 1.0}
    return [{**case, "dtype": dtype} for case in (skewed, large, masked, hot, alike, nothing) for dtype in dtypes]


def question(case: Mapping[str, Any], device: str) -> Question:
    """The tensors of a case. They are drawn on the CPU, so equal seeds give equal numbers on all devices."""
    generator = torch.Generator().manual_seed(case["seed"])
    dtype = getattr(torch, case["dtype"])
    draw = _integers if case["dtype"] in HALF else _reals
    student, student_head = draw(case, generator)
    teacher, teacher_head = draw(case, generator)
    labels = _labels(case, generator)
    if case["alike"]:
        student, teacher = student[:1].expand(case["rows"], -1), teacher[:1].expand(case["rows"], -1)
        labels = torch.where(labels == IGNORED, IGNORED, int(labels.max().clamp_min(0)))
    tensors = (tensor.to(device, dtype).contiguous() for tensor in (student, student_head, teacher, teacher_head))
    return Question(*tensors, labels.to(device), case["alpha"], case["temperature"], case["upstream"])


def _reals(case: Mapping[str, Any], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Hidden states and head of one model, whose logits have the case's scale."""
    hidden = torch.randn(case["rows"], case["width"], generator=generator, dtype=torch.float64)
    head = torch.randn(case["vocabulary"], case["width"], generator=generator, dtype=torch.float64)
    if case["skewed"]:  # every row is parallel to the head's row of some token
        chosen = torch.randint(case["vocabulary"], (case["rows"],), generator=generator)
        hidden += _FAVOURITE * head[chosen] / head[chosen].square().sum(dim=-1, keepdim=True).clamp_min(0.1)
    hidden *= case["scale"] / case["width"] ** 0.5
    return hidden, head


def _integers(case: Mapping[str, Any], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Hidden states and head as small integers times a power of two; so are the logits, with at most eight bits."""
    largest = 2 if case["width"] <= _EXACT_WIDTH else 1
    shapes = (case["rows"], case["width"]), (case["vocabulary"], case["width"])
    hidden, head = (torch.randint(-largest, largest + 1, shape, generator=generator).double() for shape in shapes)
    if case["skewed"]:
        hidden += head[torch.randint(case["vocabulary"], (case["rows"],), generator=generator)]
    size = case["width"] ** 0.5 * largest * (largest + 1) / 3.0  # the largest magnitude of a logit
    hidden *= 2.0 ** round(math.log2(case["scale"] / size))
    return hidden, head


def _labels(case: Mapping[str, Any], generator: torch.Generator) -> Tensor:
    """Token ids of the rows. The case says which share is ignored; a share of 1 ignores all."""
    labels = torch.randint(case["vocabulary"], (case["rows"],), generator=generator)
    ignored = torch.randperm(case["rows"], generator=generator)[: round(case["ignored"] * case["rows"])]
    labels[ignored] = IGNORED
    return labels
