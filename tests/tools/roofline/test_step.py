"""The work of operators, and their places under given roofs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from harness.tools.roofline.roofs import PeakTooLowError, Roof, RooflineError
from harness.tools.roofline.step import Kernel, kernels, placed, profiled
from harness.tools.roofline.work import Work, work_of
from tests.tools.roofline.given import ROOFS

BF16 = "c10::BFloat16"


def of(name: str, *tensors: list[int], kind: str = "float", values: tuple[str, ...] = ()) -> Work | None:
    """The work of an operator on contiguous tensors, then on scalars."""
    strides = [list(torch.empty(shape, device="meta").stride()) for shape in tensors] + [[] for _ in values]
    types = [kind] * len(tensors) + ["Scalar" if value else "" for value in values]
    return work_of(name, [*tensors, *([] for _ in values)], types, strides, [*("" for _ in tensors), *values])


def test_products_count_as_torch_counts_them() -> None:
    assert of("aten::mm", [8, 16], [16, 4]) == Work(2 * 8 * 16 * 4, 4 * (128 + 64 + 32), "float32", True)
    assert of("aten::addmm", [4], [8, 16], [16, 4], values=("1", "1")) == Work(
        2 * 8 * 16 * 4, 4 * (4 + 128 + 64 + 32), "float32", True
    )


def test_attention_with_a_causal_mask_counts_half() -> None:
    name, shape = "aten::_scaled_dot_product_flash_attention_for_cpu", [1, 2, 16, 8]
    whole = of(name, shape, shape, shape, values=("0.", "False", "", ""))
    causal = of(name, shape, shape, shape, values=("0.", "True", "", ""))
    assert whole is not None
    assert causal is not None
    assert whole.operations == 2 * 2 * 2 * 16 * 16 * 8
    assert causal.operations == whole.operations / 2


@pytest.mark.parametrize(
    ("name", "tensors", "values", "numbers"),
    [
        ("aten::mul", ([8, 8], [8, 8]), (), 3 * 64),
        ("aten::add_", ([8, 8], [8, 8]), ("1",), 3 * 64),
        ("aten::copy_", ([8, 8], [8, 8]), ("False",), 2 * 64),
        ("aten::sum", ([8, 8],), ("",), 64 + 1),
    ],
)
def test_other_operators_move_each_argument_and_result_once(
    name: str, tensors: tuple[list[int], ...], values: tuple[str, ...], numbers: int
) -> None:
    assert of(name, *tensors, values=values) == Work(64, 4 * numbers, "float32", False)


def test_a_gather_reads_what_it_writes() -> None:
    shapes, types = [[1000, 8], [4], [], [], []], ["float", "long int", "Scalar", "Scalar", "Scalar"]
    found = work_of("aten::embedding", shapes, types, [[8, 1], [1], [], [], []], ["", "", "-1", "False", "False"])
    assert found is not None
    assert found.bytes == 2 * 4 * 8 * 4 + 4 * 8


def test_what_is_repeated_counts_once() -> None:
    found = work_of("aten::sum", [[1000, 8], []], ["float", ""], [[0, 1], []], ["", ""])
    assert found is not None
    assert found.bytes == 4 * (8 + 1)


def test_a_kernel_of_triton_moves_its_arguments() -> None:
    assert of("triton_poi_fused_add_0", [8, 8], [8, 8], kind=BF16) == Work(64, 2 * 128, "bfloat16", False)


@pytest.mark.parametrize(
    "operator", ["MmBackward0", "mine::linear_cross_entropy", "aten::no_such_operator", "aten::mm"]
)
def test_what_the_trace_does_not_tell_is_not_known(operator: str) -> None:
    assert of(operator, [8, 16], [15, 4]) is None


def under(work: Work | None, seconds: float = 1.0) -> tuple[str | None, float | None]:
    """The place of a kernel under the given roofs."""
    found = placed(Kernel("k", "o", 1, seconds, work), ROOFS)
    return found.roof, found.share


def test_a_kernel_lies_under_the_roof_that_it_is_nearest_to() -> None:
    assert under(Work(5e12, 1e11, "float32", True)) == ("product float32", 0.5)
    assert under(Work(1e12, 5e11, "float32", True)) == ("memory", 0.5)
    assert under(Work(1e9, 2.5e11, "bfloat16", False)) == ("memory", 0.25)
    assert under(Work(1e9, 2e12, "bfloat16", False)) == ("cache", 0.5)
    assert under(Work(1e9, 5e12, "bfloat16", False)) == (None, None)
    assert under(None) == (None, None)


def test_more_operations_than_the_peak_are_an_error() -> None:
    with pytest.raises(PeakTooLowError):
        under(Work(1.12e13, 1e9, "float32", True))


def test_a_product_of_many_zeros_may_be_faster_than_of_random_numbers() -> None:
    zeros = Roof("zeros float32", 1.2e13, 1.1e13, "an arm")
    roofs = dataclasses.replace(ROOFS, roofs={**ROOFS.roofs, zeros.name: zeros})
    found = placed(Kernel("k", "o", 1, 1.0, Work(1.12e13, 1e9, "float32", True)), roofs)
    assert (found.roof, found.share) == (None, None)
    with pytest.raises(PeakTooLowError):
        placed(Kernel("k", "o", 1, 1.0, Work(1.21e13, 1e9, "float32", True)), roofs)


def test_the_kernels_of_a_step_on_this_processor() -> None:
    torch.manual_seed(0)
    left, right = torch.randn(64, 32), torch.randn(32, 16)
    seconds, found = profiled(lambda: (left @ right).relu(), "cpu")
    assert seconds > 0
    (product,) = [defect for defect in found if defect.operator == "aten::mm"]
    assert product.work == Work(2 * 64 * 32 * 16, 4 * (64 * 32 + 32 * 16 + 64 * 16), "float32", True)
    assert product.calls == 1


def test_a_step_that_runs_nothing_is_refused() -> None:
    with pytest.raises(RooflineError):
        profiled(lambda: None, "cpu")


def event(category: str, name: str, start: float, length: float, **given: Any) -> dict[str, Any]:
    """One event of a trace."""
    return {"cat": category, "name": name, "ts": start, "dur": length, "tid": 1, "args": given}


def test_kernels_of_a_gpu_belong_to_the_operator_that_launched_them() -> None:
    document = {
        "Input Dims": [[8, 16], [16, 4]], "Input type": [BF16, BF16], "Input Strides": [[16, 1], [4, 1]],
        "Concrete Inputs": ["", ""],
    }  # fmt: skip
    events = [
        event("cpu_op", "aten::mm", 0, 5, **document, **{"External id": 7}),
        event("cpu_op", "LinearCrossEntropy", 6, 5, **{"External id": 8}),
        event("kernel", "split", 1, 4, **{"External id": 7}),
        event("kernel", "gemm", 5, 10, **{"External id": 7}),
        event("kernel", "rows", 15, 3, **{"External id": 8}),
        event("gpu_memset", "Memset (Device)", 18, 1),
        event("kernel", "no operator", 19, 2),
    ]
    found = {
        kernel.name: (kernel.operator, round(kernel.seconds * 1e6), kernel.work) for kernel in kernels(events, "cuda")
    }
    assert found["gemm"] == ("aten::mm", 14, Work(2 * 8 * 16 * 4, 2 * (128 + 64 + 32), "bfloat16", True))
    assert found["rows"] == ("LinearCrossEntropy", 3, None)
    assert found["no operator"] == ("", 2, None)


def test_an_operator_of_a_cpu_counts_without_the_operators_that_it_calls() -> None:
    events = [
        event("cpu_op", "aten::linear", 0, 10),
        event("cpu_op", "aten::mm", 1, 8),
        event("cpu_op", "aten::t", 0, 1),
    ]
    assert {kernel.operator: round(kernel.seconds * 1e6) for kernel in kernels(events, "cpu")} == {
        "aten::mm": 8,
        "aten::t": 1,
    }
