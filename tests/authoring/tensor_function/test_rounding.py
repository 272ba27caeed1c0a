"""Which errors rounding explains, where equal numbers, long sums and saturated gradients meet it; and a lost GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from harness.authoring.tensor_function import TensorFunction, try_relations
from harness.authoring.tensor_function.call import Answer, Call, template
from harness.authoring.tensor_function.drawing import Draw
from harness.authoring.tensor_function.hosting import Host
from harness.authoring.tensor_function.tolerance import truth


def rows(draw: Draw) -> tuple[Tensor]:
    return (draw.tensor(draw.size("rows"), draw.size("width")),)


def called(*tensors: Tensor) -> Call:
    found, arguments = template(tensors, {})
    return Call(tuple(found), arguments)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def half_sum(x: Tensor) -> Tensor:
    """A softmax that sums in float16 where its input is float16."""
    if x.dtype != torch.float16 or x.requires_grad:
        return softmax(x)
    powers = (x - x.amax(-1, keepdim=True)).float().exp()
    return (powers / powers.sum(-1, keepdim=True).to(torch.float16).float()).to(x.dtype)


def test_a_sum_in_float16_overflows() -> None:
    """65,537 ones are more than the largest float16: the result is 0, and 1 / 65,537 is due."""
    for function, violated in ((half_sum, True), (softmax, False)):
        found = try_relations(TensorFunction.of(function, softmax, rows, largest=1 << 14), ["sizes"])
        assert bool(found.violations) is violated


@pytest.mark.parametrize("count", [64, 4096])
def test_equal_rows_round_alike(count: int) -> None:
    """The bfloat16 error of a sum of equal products grows with their number, not with its root."""
    factor = torch.full((count, 1), 1.515625, dtype=torch.bfloat16)
    third = torch.full((count, 1), 1 / 3, dtype=torch.bfloat16)
    exact = truth(lambda a, b: (a * b).sum(0), called(factor, third), "bfloat16").outputs[0]
    rounded = (factor * third).float().sum(0).double()
    assert bool((rounded - exact.value).abs() <= exact.bound)


def test_a_saturated_gradient_is_as_exact_as_the_largest() -> None:
    """sigmoid'(-16) is 1e-7. Through 1 - tanh^2 it comes out as 0, which float32 cannot help."""
    x = torch.tensor([0.0, -16.0])

    def gradient(x: Tensor) -> Tensor:
        return 0.25 * (1.0 - torch.tanh(x / 2) ** 2)

    call = replace(called(x), grad_inputs=(0,), upstream=(torch.ones(2),))
    due = truth(torch.sigmoid, call, "float32").gradients[0]
    assert bool(((gradient(x).double() - due.value).abs() <= due.bound).all())


class Crashing(Host):
    """The GPU is lost in the third call."""

    def call(self, call: Call) -> Answer:
        if self._calls == 2:
            return Answer(raised="AcceleratorError: misaligned address", crashed="AcceleratorError: misaligned address")
        return super().call(call)


def test_a_lost_gpu_ends_the_relations() -> None:
    """The relation that lost it is violated, and no later one is said to hold."""
    function = TensorFunction(Crashing(softmax), softmax, rows, dtypes=("float32",))
    found = try_relations(function, ["value", "gradient", "sizes"])
    assert "misaligned address" in found.violations["value"][0]
    assert found.inapplicable.keys() == {"gradient", "sizes"}
