"""The inputs on which attention is tried. A case is JSON; its tensors are drawn from its own seed.

The mean of the scores is not zero, so that weights seldom cancel. A tenth of the rows has values a thousand times
smaller, so an error in them shows only relative to their own size.
"""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.recsys.subject import Question

LAYOUTS = ("contiguous", "heads first", "interleaved", "mixed")
"""[rows, heads, width] in memory; [heads, rows, width]; q, k and v side by side in one tensor; and each by itself.

The gradient of the output follows: beside itself in the third one, where a case has a gap behind each head's numbers.
In "mixed" each tensor has axes in an order of its own, gaps and a first address; offsets and counts have gaps too.
"""
_ORDERS = ((0, 1, 2), (1, 0, 2))
"""Of rows, heads and width, whose numbers are side by side."""
_ANY_ORDERS = (*_ORDERS, (0, 2, 1), (2, 1, 0))
_GAPS = (0, 2, 16)
"""Gaps after a head, in numbers of two bytes: bulk loads need strides in multiples of 8, and Triton detects 16."""
_STARTS = (0, 0, 0, 0, 16, 1)
"""Numbers before the first; after one, addresses are no multiples of 16 bytes."""
_DTYPES = ("bfloat16", "float16")
_MANY_HEADS = 13
_LONG = 2048
"""Room after the longest sequence. A kernel may choose other blocks if sequences could be this long."""


def cases(parameters: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw cases of up to the parameters' `largest_batch`, `largest_length` and `largest_heads`."""
    longest = parameters["largest_length"]
    edge = _edge(longest)
    return st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(_DTYPES),
            "lengths": st.lists(st.integers(0, longest), min_size=1, max_size=parameters["largest_batch"]),
            "heads": st.integers(1, parameters["largest_heads"]),
            "width": st.sampled_from(parameters["widths"]),
            "value_width": st.sampled_from(parameters["widths"]),
            "targets": st.sampled_from([None, 1, 2, 10]),
            "group": st.sampled_from([1, 2, 16, 256]),
            "contextuals": st.sampled_from([None, 0, 2, 4, 2 * edge + 1]),
            "window": st.sampled_from([0, 1, 3, longest // 4]),
            "full": st.sampled_from([0, 1, 5, edge + 1]),
            "causal": st.sampled_from([True, True, False]),
            "scaling": st.sampled_from([1.0, 0.5, 2.5]),
            "alpha": st.sampled_from([1.0, 0.6]),
            "room": st.sampled_from([0, 7, _LONG]),
            "layout": st.sampled_from((*LAYOUTS, "mixed")),
            "gap": st.sampled_from(_GAPS),
            "again": st.sampled_from([False, False, False, True]),
            "seed": st.integers(0, 2**16),
        }
    )


def first_cases(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return cases that every search begins with.

    Each head width with targets, contextuals, and its own alpha and scaling length, where defects of a mask or a factor
    show, and once more with another group size; groups; room for long sequences; no contextuals at all, and none in any
    sequence; a window with and without rows that are free of it; no mask but the sequences' ends; sequences of no and
    of one row; a single row with more heads; as many sequences as the parameters' `most_sequences`: 1,025 have more
    rows than int16 counts. Windows, targets, contextual rows and free rows end at a block's edge, one before or one
    after it; the rows at the end of these windows have no small values.

    If all rows are targets, each attends only to itself, so that errors of weights do not average out. In the
    interleaved layout, heads of 32 numbers with a gap of 4 lie no multiple of 8 numbers apart, but rows of two such
    heads do. With a gap of 6 neither do, and both distances are multiples of 17.
    """
    longest, widths = parameters["largest_length"], parameters["widths"]
    edge = _edge(longest)
    plain = {
        "lengths": [longest, longest // 2, 3], "heads": 1, "width": widths[0],
        "value_width": widths[0], "targets": 10, "group": 1, "contextuals": 4, "window": 0, "full": 0, "causal": True,
        "scaling": 0.5, "alpha": 0.6, "room": 7, "layout": "contiguous", "gap": 0, "again": False,
        "seed": 0, "negative": False,
    }  # fmt: skip
    kinds = [
        *({**plain, "width": width, "value_width": width} for width in widths),
        {**plain, "lengths": [longest // 2, 3], "heads": 2, "again": True, "gap": 4},
        {**plain, "group": 3, "width": widths[-1], "heads": parameters["largest_heads"], "layout": "mixed"},
        {
            **plain, "lengths": [3, longest // 4], "heads": 2, "targets": None, "layout": "mixed", "again": True,
            "gap": 6,
        },
        {
            **plain, "targets": None, "contextuals": None, "value_width": widths[-1], "scaling": 1.0, "room": 0,
            "negative": True,
        },
        {**plain, "heads": parameters["largest_heads"], "targets": longest, "contextuals": None, "negative": True},
        {
            **plain, "lengths": [3, longest], "targets": None, "contextuals": None, "width": widths[-1],
            "value_width": widths[-1], "room": _LONG,
        },
        *(
            {**plain, "heads": 2, "targets": None, "contextuals": None, "width": width, "value_width": width, "seed": 2}
            for width in widths
        ),
        {
            **plain, "lengths": [3, 0, 0, *[33] * (parameters["most_sequences"] - 4), 1], "targets": None,
            "contextuals": None, "width": widths[-1],
        },
        {**plain, "contextuals": 0, "targets": 2, "group": 2, "layout": "mixed"},
        {**plain, "group": 2},
        {**plain, "window": edge, "contextuals": edge + 1, "seed": 1},
        {**plain, "window": 3 * edge - 2, "full": 1, "targets": 2, "contextuals": None, "seed": 1},
        {**plain, "lengths": [2 * edge + 2], "window": 2 * edge, "targets": None, "contextuals": None, "seed": 1},
        {**plain, "lengths": [longest], "window": 1, "full": 1, "targets": None, "contextuals": None, "seed": 1},
        {**plain, "lengths": [4 * edge], "targets": 2 * edge + 1, "contextuals": None},
        {**plain, "lengths": [4 * edge], "targets": 2 * edge + 1, "causal": False},
        {**plain, "causal": False, "contextuals": None, "targets": None},
        {**plain, "causal": False, "targets": 4, "contextuals": None, "window": 1, "layout": "mixed"},
        {**plain, "lengths": [0, 1, longest, 0], "targets": 1, "contextuals": None},
        {**plain, "lengths": [1], "heads": _MANY_HEADS, "targets": None, "contextuals": None},
        {**plain, "lengths": [longest], "targets": None, "contextuals": 2 * edge + 1, "room": _LONG},
        {**plain, "lengths": [longest], "targets": None, "contextuals": 2 * edge + 1, "window": 1},
        {**plain, "lengths": [longest], "targets": None, "contextuals": None, "window": 1, "full": edge + 1},
    ]  # fmt: skip
    return [
        {**kind, "dtype": dtype, "negative": kind["negative"] and dtype == "float16"}
        for kind in kinds
        for dtype in _DTYPES
    ]


def _edge(longest: int) -> int:
    """Return the largest power of two up to a quarter of the longest sequence: a whole number of blocks."""
    return 1 << (longest // 4).bit_length() - 1


def question(case: Mapping[str, Any], device: str) -> Question:
    """Return the tensors of a case. They are drawn on the CPU, so equal seeds give equal numbers on all devices.

    Of each sequence, the last rows are targets, as many as the case says; of the rest, the first rows are contextual.
    """
    return _question(case, device, is_earlier=False)


def earlier(case: Mapping[str, Any], device: str) -> Question:
    """Return another batch, for a call before the measured one: equal strides, but other lengths and values.

    Its addresses are multiples of 16 bytes if and only if the case's addresses are not.
    """
    return _question(case, device, is_earlier=True)


def _question(case: Mapping[str, Any], device: str, *, is_earlier: bool) -> Question:
    sizes: Sequence[int] = case["lengths"][::-1] if is_earlier else case["lengths"]
    lengths = torch.tensor(sizes)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    targets = None if case["targets"] is None else lengths.clamp_max(case["targets"])
    rest = lengths if targets is None else lengths - targets
    contextuals = None if case["contextuals"] is None else rest.clamp_max(case["contextuals"])
    longest = max(1, *sizes)
    drawn = _drawn(case, int(lengths.sum()), torch.Generator().manual_seed(case["seed"] + is_earlier))
    tensors = [tensor.to(device, getattr(torch, case["dtype"])) for tensor in drawn]
    offsets = offsets.to(device)
    targets, contextuals = (None if tensor is None else tensor.to(device) for tensor in (targets, contextuals))
    starts = [0] * len(tensors)
    if case["layout"] == "mixed":
        chance = random.Random(repr(sorted(case.items())))  # noqa: S311 - nothing is kept secret
        starts = [chance.choice(_STARTS) for _ in tensors]
        orders = (_ORDERS, _ORDERS, _ORDERS, _ANY_ORDERS)
        tensors = [
            _placed(tensor, chance.choice(order), chance.choice(_GAPS))
            for tensor, order in zip(tensors, orders, strict=True)
        ]
        offsets = _spread(offsets)
        targets, contextuals = (None if tensor is None else _spread(tensor) for tensor in (targets, contextuals))
    else:
        tensors = _laid_out(case["layout"], case.get("gap", 0), *tensors)
    if is_earlier:
        starts = [0 if 1 in starts else 1] * len(tensors)
    q, k, v, grad_output = (_moved(tensor, start) for tensor, start in zip(tensors, starts, strict=True))
    return Question(
        q,
        k,
        v,
        grad_output,
        offsets,
        longest + case.get("room", 0),
        max(1, round(longest * case["scaling"])),
        case["width"] ** -0.5 * case.get("alpha", 1.0),
        case["causal"],
        targets,
        case["group"],
        contextuals,
        case["window"],
        case["full"],
    )


def _drawn(case: Mapping[str, Any], rows: int, generator: torch.Generator) -> list[Tensor]:
    """Draw q, k, v and the gradient of the output, [rows, heads, width] each."""
    widths = (case["width"], case["width"], case["value_width"], case["value_width"])
    tensors = [torch.randn(rows, case["heads"], width, generator=generator) for width in widths]
    shifts = (0.3, 0.3, 0.0, 0.0) if not case.get("negative") else (1.5, -1.5, 0.0, 0.0)
    q, k, v, grad_output = (tensor + shift for tensor, shift in zip(tensors, shifts, strict=True))
    small = 1.0 - 0.999 * (torch.rand(rows, 1, 1, generator=generator) < 0.1).float()
    return [q * small, k, v, grad_output * small]


def _laid_out(layout: str, gap: int, q: Tensor, k: Tensor, v: Tensor, grad_output: Tensor) -> list[Tensor]:
    """Return equal tensors with other strides."""
    if layout == "heads first":
        q, k, v, grad_output = (
            tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in (q, k, v, grad_output)
        )
    if layout == "interleaved":
        nothing = q.new_full((*q.shape[:2], gap), math.nan)
        parts = [tensor.shape[2] for tensor in (q, k, v, nothing)]
        q, k, v, _ = torch.cat([q, k, v, nothing], dim=2).split(parts, dim=2)
        grad_output = torch.cat([grad_output, grad_output, nothing], dim=2)[:, :, : grad_output.shape[2]]
    return [q, k, v, grad_output]


def _placed(tensor: Tensor, order: tuple[int, ...], gap: int) -> Tensor:
    """Return an equal tensor with axes in this order in memory, and NaN in gaps."""
    *outer, inner = (tensor.shape[axis] for axis in order)
    there = tensor.new_full((*outer, inner + gap), math.nan)[..., :inner]
    return there.permute(*(order.index(axis) for axis in range(len(order)))).copy_(tensor)


def _moved(tensor: Tensor, start: int) -> Tensor:
    """Return an equal tensor with equal strides, and NaN before the first number and in gaps."""
    if start == 0:
        return tensor
    size = 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.new_full((start + max(size, 0),), math.nan)
    return memory.as_strided(tensor.shape, tensor.stride(), start).copy_(tensor)


def _spread(counts: Tensor) -> Tensor:
    """Return equal counts at every second place of memory, with -1 between them."""
    return counts.new_full((2 * len(counts),), -1)[::2].copy_(counts)
