"""Under autocast, products round their factors: that is right, and more than that is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harness.authoring.tensor_function import Draw, TensorFunction, try_relations


def example(draw: Draw) -> tuple[Tensor, Tensor]:
    rows, inner, columns = draw.size("rows"), draw.size("inner"), draw.size("columns")
    return draw.tensor(rows, inner), draw.tensor(inner, columns)


def rounds_coarsely(left: Tensor, right: Tensor) -> Tensor:
    """A product that rounds its first factor to three bits under autocast."""
    if torch.is_autocast_enabled("cpu"):
        left = left.to(torch.float8_e5m2).to(left.dtype)
    return left @ right


@pytest.mark.parametrize("seed", range(4))
def test_a_product_of_torch_is_right(seed: int) -> None:
    found = try_relations(TensorFunction.of(torch.matmul, torch.matmul, example), ["autocast"], device="cpu", seed=seed)
    assert found.violations == {}
    assert found.tried["autocast"] == 1


def test_a_product_that_rounds_more_is_wrong() -> None:
    function = TensorFunction.of(rounds_coarsely, torch.matmul, example)
    assert set(try_relations(function, ["autocast"], device="cpu").violations) == {"autocast"}
