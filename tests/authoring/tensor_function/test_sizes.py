"""Which sizes are tried within `largest`, and what a gradient that is the gradient from above may be."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.authoring.tensor_function import RELATIONS, Draw, TensorFunction, try_relations


def example(draw: Draw) -> tuple[Tensor]:
    return (draw.tensor(draw.size("rows"), draw.size("width")),)


def wrong_above_256(x: Tensor) -> Tensor:
    """Zero at the end of rows that are longer than a block."""
    out = x * 2
    return torch.cat([out[:, :256], out[:, 256:] * 0], 1) if x.shape[1] > 256 else out


def double(x: Tensor) -> Tensor:
    return x * 2


def test_a_size_that_fits_with_few_rows_is_tried() -> None:
    """1 row of 257 numbers is within 512, while the usual number of rows is not."""
    function = TensorFunction.of(wrong_above_256, double, example, constants=(256,), largest=512)
    found = try_relations(function, ["sizes"], device="cpu")
    assert "width=257" in found.violations["sizes"][0]
    assert found.refused.get("sizes") is None


def test_integers_of_the_source_that_are_too_large_are_named() -> None:
    function = TensorFunction.of(double, double, example, constants=(256, 4000), largest=512)
    found = try_relations(function, ["sizes"], device="cpu")
    assert found.violations == {}
    assert [one for one in found.refused["sizes"] if "width of [4000]" in one]


def test_the_gradient_from_above_may_be_the_gradient() -> None:
    """torch's sum returns the same tensor, whose memory the harness refills for the next call."""

    def pair(draw: Draw) -> tuple[Tensor, Tensor]:
        rows, width = draw.size("rows"), draw.size("width")
        return draw.tensor(rows, width), draw.tensor(rows, width)

    names = [name for name, one in RELATIONS.items() if not one.needs_gpu and name not in ("compiled", "no_growth")]
    found = try_relations(TensorFunction.of(torch.add, torch.add, pair, largest=512), names, device="cpu")
    assert found.violations == {}
