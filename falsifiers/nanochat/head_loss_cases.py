"""The inputs on which the loss is tried. A case is JSON; its tensors are drawn from its own seed.

In half precision, hidden states and heads are small integers times a power of two. Every logit is then exact in any
order of summation, so a loss can be as exact as in float32.

The first two rows have the first and the last token of the vocabulary as targets. The upstream gradient of the losses
of rows is strided, as the gradient of a sum is, and zero for a quarter of the rows.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.nanochat.head_question import HeadQuestion

HALF = ("bfloat16", "float16")
_DTYPES = ("float64", "float32", *HALF)
_HIGHEST = (82, 88, 109)
"""Logits: the sum of 300 exponentials is within float32, 64 times it is not; the sum is not; no exponential is."""
_EXACT_WIDTH = 32
"""Up to this width, products of integers up to 2 sum to 128 at most, which has eight bits."""


def cases(parameters: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw cases of up to the parameters' `largest_rows`, `largest_vocabulary` and `largest_width`."""
    return st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(_DTYPES),
            "rows": st.integers(1, parameters["largest_rows"]),
            "vocabulary": st.integers(2, parameters["largest_vocabulary"]),
            "width": st.integers(1, parameters["largest_width"]),
            "scale": st.sampled_from([1.0, 0.1, 4.0, 10.0, 30.0]),
            "alike": st.sampled_from([False, True]),
            "ignored": st.sampled_from([0.0, 0.1, 0.75]),
            "ignore_index": st.sampled_from([-100, -1, 0]),
            "label_smoothing": st.sampled_from([0.0, 0.1, 1.0]),
            "z_loss": st.sampled_from([0.0, 1e-4, 0.01]),
            "softcap": st.sampled_from([0.0, 15.0]),
            "reduction": st.sampled_from(["mean", "sum", "none"]),
            "float32_sums": st.sampled_from([True, False]),
            "upstream": st.sampled_from([1.0, 2.0, 0.3, -3.0]),
            "frozen": st.sampled_from(["", "hidden", "weight"]),
            "seed": st.integers(0, 2**16),
        }
    )


def first_cases(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return cases that every search begins with.

    A small one; one row, and one token more than a kernel's block; some and all rows ignored; logits beyond 88; every
    option at once; each reduction; each input frozen; and many equal rows, whose terms have one sign, so that a sum in
    half precision stops growing. Their mean has terms too small for float16 unless they are scaled. The losses of
    some rows are just below and above 88 nats, the largest logarithm in float32. The last case has no rows.
    """
    small = {
        "rows": 6, "vocabulary": 24, "width": 8, "scale": 4.0, "alike": False, "ignored": 0.0, "ignore_index": -100,
        "label_smoothing": 0.0, "z_loss": 0.0, "softcap": 0.0, "reduction": "mean", "float32_sums": True,
        "upstream": 1.0, "frozen": "", "seed": 0,
    }  # fmt: skip
    masked = {**small, "rows": 37, "vocabulary": 200, "width": 32, "ignored": 0.1, "upstream": 0.3}
    every = {**masked, "label_smoothing": 0.1, "z_loss": 0.01, "softcap": 15.0}
    alike = {**small, "rows": parameters["most_alike"], "vocabulary": 33, "alike": True, "reduction": "sum"}
    kinds = [
        small,
        {**small, "rows": 1, "vocabulary": parameters["past_a_step"], "upstream": 2.0},
        masked,
        {**masked, "ignored": 1.0},
        {**small, "scale": 100.0},
        every,
        {**every, "reduction": "none", "ignore_index": 0, "frozen": "hidden"},
        {**small, "frozen": "hidden"},
        {**small, "frozen": "weight"},
        {**small, "reduction": "none", "frozen": "weight"},
        {**every, "reduction": "sum", "float32_sums": False, "upstream": -3.0},
        {**masked, "reduction": "none"},
        alike,
        *({**small, "rows": 20, "vocabulary": 300, "highest": highest} for highest in _HIGHEST),
        {**small, "rows": 0},
        {**small, "rows": 0, "reduction": "none"},
    ]
    tiny = {**alike, "reduction": "mean", "dtype": "float16"}
    return [*({**kind, "dtype": dtype} for kind in kinds for dtype in _DTYPES), tiny]


def question(case: Mapping[str, Any], device: str) -> HeadQuestion:
    """Return the tensors of a case, drawn on the CPU, where equal seeds draw equal numbers."""
    generator = torch.Generator().manual_seed(case["seed"])
    hidden, weight = (_integers if case["dtype"] in HALF else _reals)(case, generator)
    targets = torch.randint(case["vocabulary"], (case["rows"],), generator=generator)
    targets[:1], targets[1:2] = 0, case["vocabulary"] - 1
    if "highest" in case:
        hidden, weight, targets = _rising(hidden, weight, case["highest"])
    if case["alike"]:
        hidden, targets = hidden[:1].expand(case["rows"], -1), targets[:1].repeat(case["rows"])
    if case["ignore_index"] >= 0:  # a padding token, which is the target of no other row
        targets[targets == case["ignore_index"]] = 1
    ignored = torch.randperm(case["rows"], generator=generator)[: math.ceil(case["ignored"] * case["rows"])]
    targets[ignored] = case["ignore_index"]
    upstream = torch.tensor(case["upstream"], dtype=torch.float32)
    if case["reduction"] == "none":
        upstream = upstream * torch.randn(case["rows"], generator=generator)
        upstream[3::4] = 0.0
    dtype = getattr(torch, case["dtype"])
    return HeadQuestion(
        hidden.to(device, dtype).contiguous(),
        weight.to(device, dtype),
        targets.to(device),
        case["ignore_index"],
        case["label_smoothing"],
        case["z_loss"],
        case["softcap"],
        case["reduction"],
        case["float32_sums"],
        upstream.repeat_interleave(2, dim=0).to(device)[::2] if upstream.ndim else upstream.to(device),
        case["frozen"],
    )


def _rising(hidden: Tensor, weight: Tensor, highest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows whose targets have the logit 0, and nearly all other tokens one of up to `highest`; and the targets.

    One column of the head has large numbers, so that sums of its products are far above those of the exponentials.
    """
    rising, head = torch.zeros_like(hidden), weight.clone()
    rising[:, 0] = torch.arange(highest - len(hidden), highest) + 1
    head[:, 0], head[:, 1] = 1.0, 64.0
    head[0, 0] = head[-1, 0] = 0.0
    return rising, head, torch.arange(len(hidden)) % 2 * (len(weight) - 1)


def _reals(case: Mapping[str, Any], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw hidden states and a head whose logits have the case's scale."""
    hidden = torch.randn(case["rows"], case["width"], generator=generator, dtype=torch.float64)
    weight = torch.randn(case["vocabulary"], case["width"], generator=generator, dtype=torch.float64)
    return hidden * case["scale"] / case["width"] ** 0.5, weight


def _integers(case: Mapping[str, Any], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw hidden states and a head as small integers times a power of two."""
    largest = 2 if case["width"] <= _EXACT_WIDTH else 1
    shapes = (case["rows"], case["width"]), (case["vocabulary"], case["width"])
    hidden, weight = (torch.randint(-largest, largest + 1, shape, generator=generator).double() for shape in shapes)
    size = case["width"] ** 0.5 * largest * (largest + 1) / 3.0  # the largest magnitude of a logit
    return hidden * 2.0 ** round(math.log2(case["scale"] / size)), weight
