"""A function can take another path without gradients; timing believes no stale result and no patched clock."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from harness.authoring.tensor_function import Draw, Host, TensorFunction, try_relations
from harness.authoring.tensor_function.adversary import Adversary
from harness.tools.kernels.paired_time import timed
from tests.authoring.tensor_function.computing_defects import _dense
from tests.authoring.tensor_function.healthy import HEALTHY, softmax

KNOWN = HEALTHY["softmax"]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("relation", "without_gradients"),
    [
        ("layouts", lambda x: softmax(_dense(x))),
        ("sizes", lambda x: softmax(x) * (1.0 if x.shape[1] < 33 else 0.0)),
        ("special_values", lambda x: torch.where(x == x.amax(), 0.0, softmax(x))),
    ],
)
def test_the_path_without_gradients_is_tried(relation: str, without_gradients: Callable[[Tensor], Tensor]) -> None:
    """The path with gradients is right."""

    def function(x: Tensor) -> Tensor:
        return softmax(x) if x.requires_grad else without_gradients(x)

    known = TensorFunction.of(function, KNOWN.reference, KNOWN.example, largest=1 << 10)
    found = try_relations(known, [relation]).violations
    assert all("without gradients" in text for text in found[relation])


def adversary_of(function: Callable[[Tensor], Tensor]) -> tuple[Adversary, Callable[[Tensor], Tensor]]:
    """An adversary that knows which dtypes the function accepts."""
    adversary = Adversary(TensorFunction(Host(function), KNOWN.reference, KNOWN.example, largest=1 << 10))
    adversary.find_dtypes()
    return adversary, function


def test_a_right_function_is_timed() -> None:
    """The interval is around the estimate, and nothing speaks against it."""
    found = timed(*adversary_of(softmax))
    assert found.problems == []
    assert 0 < found.ratio.low <= found.ratio.estimate <= found.ratio.high


def test_a_timed_result_has_to_be_right() -> None:
    """A result that is remembered once the clock runs is found."""
    calls: list[Tensor] = []

    def stale(x: Tensor) -> Tensor:
        if len(calls) < 10:
            calls.append(softmax(x))
        return calls[-1] if calls[-1].shape == x.shape else softmax(x)

    adversary, _ = adversary_of(softmax)
    assert timed(adversary, stale).problems


def test_a_patched_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock was read before the function was imported."""
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    assert timed(*adversary_of(softmax)).ratio.low > 0


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
    assert [size for size in found.refused["sizes"] if "width of [4000]" in size]


LATE = """
import torch

from harness.authoring.tensor_function import TensorFunction, try_relations
from harness.tools.probe import predict
from tests.authoring.tensor_function.test_other_paths import double, example


def build():
    weight = torch.ones(2, device="cuda", requires_grad=True)
    return lambda: weight.sum().backward()


predict(build)
calls = []


def later(x):
    calls.append(x)
    return x * 2 + (len(calls) > 3)


for function in (double, later):
    found = try_relations(TensorFunction.of(function, double, example, dtypes=("float32",)), ["history"])
    print(bool(found.violations), found.refused["history"])
"""


def test_without_a_fresh_process_the_history_says_so() -> None:
    """Where autograd's threads run before the fork, torch refuses a backward pass. It is no violation."""
    ran = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["False", "True"]
    assert all("autograd's threads ran before" in line for line in lines)
