"""Inputs for the backward of a projection.

A case is a JSON object. Its tensors are drawn from its seed, so a case can be run again exactly.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.blackwell.oracle.qwen2 import Shape, TrueBlock
from harness import NotMeasured

_SCALES = (1.0, 0.001)
_WEIGHT = 0.02
"""Standard deviation of Qwen2's initial weights."""
_LAYOUTS = ("rows", "apart", "transposed")
_FAR: Final = 2**30 + 2**10
"""Elements between two rows of the layout "far". The third row begins where an index of 32 bits is negative."""
_FAR_ROWS: Final = 3
_FAR_COLUMNS: Final = 64
_NO_RESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python 3.12 has the name


@dataclass(frozen=True)
class Question:
    """One request for the backward of a projection.

    Attributes:
        x: [tokens, in]; weight: [out, in].
        gradients: two gradients [tokens, out], passed one after the other.
        bias: whether the gradient of the bias, the sum over tokens, is requested.
    """

    projection: str
    x: Tensor
    weight: Tensor
    gradients: tuple[Tensor, Tensor]
    bias: bool


def cases(shape: Shape, largest_tokens: int, largest_size: int) -> st.SearchStrategy[dict[str, Any]]:
    """Cases of every projection of the block, with its own sizes and with arbitrary ones.

    A drawn case has at most half of `largest_tokens`. The search looks for the worst case, and in one of 200 cases with
    1,024 tokens some of the four million sums differ by more than 1e-5 only because of the order of additions.
    """
    own = _projections(shape)
    sizes = st.one_of(
        st.tuples(st.integers(1, largest_size), st.integers(1, largest_size)), st.sampled_from(list(own.values()))
    )
    return st.fixed_dictionaries(
        {
            "projection": st.sampled_from(list(own)),
            "tokens": st.integers(1, largest_tokens // 2),
            "sizes": sizes.map(list),
            "bias": st.booleans(),
            "scale": st.sampled_from(_SCALES),
            "dtype": st.sampled_from(("float32", "bfloat16")),
            "layouts": st.lists(st.sampled_from(_LAYOUTS), min_size=3, max_size=3),
            "seed": st.integers(0, 2**16),
        }
    )


def first_cases(shape: Shape, tokens: int) -> list[dict[str, Any]]:
    """The cases that are always tried.

    - All seven projections of the block, at both scales.
    - Sizes that end inside a tile in every dimension, one of them with several tiles in each, longer sums than 512
      and a bias that is wider than a tile.
    - Rows so far apart that an index of 32 bits overflows.
    - A batch longer than any that was warmed up. Its gradients are small, because for so many summands the order of
      additions alone changes larger sums by 1e-5.
    """
    plain = {"layouts": ["rows"] * 3, "dtype": "float32", "seed": 0}
    own = [
        {
            "projection": name,
            "tokens": tokens,
            "sizes": list(sizes),
            "bias": name in ("q", "k", "v"),
            "scale": scale,
            **plain,
        }
        for name, sizes in _projections(shape).items()
        for scale in _SCALES
    ]
    tails = {"projection": "q", "tokens": 37, "sizes": [41, 43], "bias": True, "scale": 1.0, **plain}
    ragged = {**tails, "tokens": 141, "sizes": [149, 531]}
    longer = {**own[1], "tokens": 2 * tokens + 1}
    return [
        *own,
        longer,
        {**own[0], "dtype": "bfloat16"},
        tails,
        {**tails, "dtype": "bfloat16"},
        {**tails, "layouts": ["transposed"] * 3},
        ragged,
        {**ragged, "dtype": "bfloat16"},
        {**tails, "tokens": _FAR_ROWS, "sizes": [41, _FAR_ROWS], "layouts": ["far"] * 3},
    ]


def _projections(shape: Shape) -> dict[str, tuple[int, int]]:
    """Input and output features of the seven projections."""
    sizes = TrueBlock(shape).parameters
    return {
        name.removesuffix(".weight"): (size[1], size[0]) for name, size in sizes.items() if name.endswith(".weight")
    }


def question(case: Mapping[str, Any], device: str) -> Question:
    """The tensors of a case, drawn on the CPU, where equal seeds give equal numbers, and copied to the device.

    Elements of x have standard deviation 1, those of the weight 0.02 as in Qwen2. The gradient is scaled so that the
    elements of the weight's gradient have the case's scale: a sum over n tokens grows like the square root of n. If
    there are few tokens, the gradient is smaller, so that the elements of x's gradient stay below half of that scale.
    They are sums over all output features, and in float32 the order of additions alone changes sums of 4,864 products
    of size 1.4 by up to 1.5e-5.

    Raises:
        NotMeasured: the layout "far" gets no address space.
    """
    generator = torch.Generator().manual_seed(case["seed"])
    dtype = getattr(torch, case["dtype"])
    tokens, (size_in, size_out) = case["tokens"], case["sizes"]

    far: list[Tensor] = []

    def drawn(rows: int, columns: int, scale: float, layout: str) -> Tensor:
        values = (scale * torch.randn(rows, columns, generator=generator, dtype=torch.float64)).to(device, dtype)
        if layout == "far":
            far.append(_far(values, far))
            return far[-1]
        if layout == "apart":  # the rows lie apart, with NaN between them
            values = torch.cat([values, torch.full_like(values, float("nan"))], dim=1)[:, :columns]
        return values.T.contiguous().T if layout == "transposed" else values

    above = case["scale"] / max(tokens**0.5, 2 * _WEIGHT * size_out**0.5)
    x_layout, weight_layout, gradient_layout = case["layouts"]
    return Question(
        case["projection"],
        drawn(tokens, size_in, 1.0, x_layout),
        drawn(size_out, size_in, _WEIGHT, weight_layout),
        (drawn(tokens, size_out, above, gradient_layout), drawn(tokens, size_out, above, gradient_layout)),
        case["bias"],
    )


def _far(values: Tensor, others: list[Tensor]) -> Tensor:
    """The values in rows that lie 2^30 elements apart, beside `others` in one buffer of 2^31 elements.

    On a CPU only the pages that are touched take memory.

    Raises:
        NotMeasured: there is no such buffer.
    """
    (rows, columns), element = values.shape, values.element_size()
    size = (_FAR_ROWS - 1) * _FAR + 4 * _FAR_COLUMNS
    try:
        if others:
            base = others[0].as_strided((size,), (1,), 0)
        elif values.is_cuda:
            base = values.new_empty(size)
        else:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
            base = torch.frombuffer(mmap.mmap(-1, size * element, flags=flags), dtype=values.dtype)
    except (OSError, torch.OutOfMemoryError) as error:
        raise NotMeasured(f"there are no {size * element} bytes of addresses for rows that lie far apart") from error
    return base.as_strided((rows, columns), (_FAR, 1), len(others) * _FAR_COLUMNS).copy_(values)
