"""What the falsifier of the two backward paths needs from a subject, and the inputs on which it tries them.

A case is JSON; its tensors are drawn from its own seed, so that it can be run again exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.shapes import PROJECTIONS, BlockShape

__all__ = ["Moved", "Path", "Question", "TwoPaths", "cases", "first_cases", "question"]

Path = Literal["new", "old"]
Moved = Literal["nothing", "backward", "products"]
"""What a library does instead of kernels of one's own: the backward of the projections, or every matrix product."""

_SCALES = (1.0, 0.001)
_WEIGHT = 0.02
"""The standard deviation with which Qwen2's weights begin."""
_LAYOUTS = ("rows", "apart", "transposed")


class TwoPaths(Protocol):
    """A block's matrix products by a library, and by kernels of one's own; built as `Subject(setting)`."""

    def backend(self, path: Path, layer: int) -> Backend:
        """The backend of one layer on this path; layers count from 0."""
        ...

    def prewarm(self, path: Path, shape: BlockShape, layers: int) -> Sequence[int]:
        """The bytes of every module in the kernel cache once all kernels of this path have been warmed up.

        Asked for the new path first, before any kernel has run. On the old one every layer has modules of its own.
        """
        ...

    def shared_modules(self, moved: Moved, shape: BlockShape) -> Sequence[int]:
        """The same of a cache that has one module for each kernel and shape, which all layers share.

        In it are all kernels of a block's forward and backward, but those whose work has moved to the library.
        """
        ...


@dataclass(frozen=True)
class Question:
    """A projection's backward.

    Attributes:
        x: [tokens, in]; weight: [out, in].
        gradients: two of [tokens, out], asked for one after the other.
        bias: whether the sums of the gradient over tokens are asked for.
    """

    projection: str
    x: Tensor
    weight: Tensor
    gradients: tuple[Tensor, Tensor]
    bias: bool


def cases(shape: BlockShape, largest_tokens: int, largest_size: int) -> st.SearchStrategy[dict[str, Any]]:
    """Every projection of the block, and sizes that are nobody's: both sides of any tile's edge.

    A search is for the worst: among four million sums of 1,024 products there are ones that differ by more than 1e-5
    for their order alone, one case in two hundred. So drawn cases have at most half of the largest number of tokens.
    """
    sizes = st.one_of(
        st.tuples(st.integers(1, largest_size), st.integers(1, largest_size)),
        st.sampled_from(PROJECTIONS).map(shape.projection),
    )
    return st.fixed_dictionaries(
        {
            "projection": st.sampled_from(PROJECTIONS),
            "tokens": st.integers(1, largest_tokens // 2),
            "sizes": sizes.map(list),
            "bias": st.booleans(),
            "scale": st.sampled_from(_SCALES),
            "dtype": st.sampled_from(("float32", "bfloat16")),
            "layouts": st.lists(st.sampled_from(_LAYOUTS), min_size=3, max_size=3),
            "seed": st.integers(0, 2**16),
        }
    )


def first_cases(shape: BlockShape, tokens: int) -> list[dict[str, Any]]:
    """All seven projections at both scales, as the block has them, and sizes with a tail in every direction.

    And a batch beyond all that was warmed up; its gradients are small, for the order of so many sums is worth 1e-5.
    """
    plain = {"layouts": ["rows"] * 3, "dtype": "float32", "seed": 0}
    own = [
        {
            "projection": name,
            "tokens": tokens,
            "sizes": list(shape.projection(name)),
            "bias": f"{name}.bias" in shape.parameters(),
            "scale": scale,
            **plain,
        }
        for name in PROJECTIONS
        for scale in _SCALES
    ]
    tails = {"projection": "q", "tokens": 37, "sizes": [41, 43], "bias": True, "scale": 1.0, **plain}
    longer = {**own[1], "tokens": 2 * tokens + 1}
    return [
        *own,
        longer,
        {**own[0], "dtype": "bfloat16"},
        tails,
        {**tails, "dtype": "bfloat16"},
        {**tails, "layouts": ["transposed"] * 3},
    ]


def question(case: Mapping[str, Any], device: str) -> Question:
    """The tensors of a case, drawn on the CPU, where equal seeds draw equal numbers, and brought to the device.

    Elements of x have size 1, weights are as large as Qwen2's at the start, and the gradient is so large that elements
    of the weight's gradient have the case's scale: sums over n tokens grow like the root of n. Few tokens have a
    smaller one, lest elements of x's gradient, which are sums over all features out, pass half of that scale: sums of
    4,864 products of size 1.4 differ by up to 1.5e-5 for the order alone in which float32 adds them.
    """
    generator = torch.Generator().manual_seed(case["seed"])
    dtype = getattr(torch, case["dtype"])
    tokens, (size_in, size_out) = case["tokens"], case["sizes"]

    def drawn(rows: int, columns: int, scale: float, layout: str) -> Tensor:
        values = (scale * torch.randn(rows, columns, generator=generator, dtype=torch.float64)).to(device, dtype)
        if layout == "apart":  # rows of a wider matrix
            values = torch.cat([values, torch.full_like(values, float("nan"))], dim=1)[:, :columns]
        return values.T.contiguous().T if layout == "transposed" else values

    above = case["scale"] / max(tokens**0.5, 2 * _WEIGHT * size_out**0.5)
    of_x, of_weight, of_gradient = case["layouts"]
    return Question(
        case["projection"],
        drawn(tokens, size_in, 1.0, of_x),
        drawn(size_out, size_in, _WEIGHT, of_weight),
        (drawn(tokens, size_out, above, of_gradient), drawn(tokens, size_out, above, of_gradient)),
        case["bias"],
    )
