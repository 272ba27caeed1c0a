"""The work of an operator: operations and bytes, from the shapes that the profiler recorded.

The operator is called again on tensors without data, so its results have the right shapes. Torch's own formulas count
the operations of products, convolutions and attention. Every other operator counts one operation for each number that
it reads or writes, whichever are more.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

__all__ = ["Work", "work_of"]

_DTYPES = {
    "float": torch.float32, "double": torch.float64, "c10::BFloat16": torch.bfloat16, "c10::Half": torch.float16,
    "long int": torch.int64, "long": torch.int64, "int": torch.int32, "short": torch.int16, "bool": torch.bool,
    "signed char": torch.int8, "unsigned char": torch.uint8, "c10::Float8_e4m3fn": torch.float8_e4m3fn,
    "c10::Float8_e5m2": torch.float8_e5m2,
}  # fmt: skip
_ONLY_WRITE = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
"""Operators that write their first argument without reading it."""
_GATHER = {"embedding", "index_select", "gather", "index", "take", "nll_loss_forward", "nll_loss2d_forward"}
"""Operators that read only as much of their first argument as they write."""


@dataclass(frozen=True)
class Work:
    """What an operator does.

    Attributes:
        operations: of floating point.
        bytes: each argument and result once.
        dtype: of its first argument, such as "bfloat16".
        products: whether torch counted the operations, so that a peak of products bounds them.
    """

    operations: float
    bytes: float
    dtype: str
    products: bool


def work_of(
    name: str, shapes: Sequence[Any], types: Sequence[str], strides: Sequence[Any], values: Sequence[str]
) -> Work | None:
    """Return an operator's work; None if it is not known.

    Args:
        name: as the profiler names it, such as "aten::mm", or of a kernel that Triton compiled.
        shapes, types, strides, values: of its arguments, as the profiler's trace has them.
    """
    try:
        arguments = [_argument(*each) for each in zip(shapes, types, strides, values, strict=True)]
    except (ValueError, SyntaxError, KeyError, TypeError):
        return None
    tensors = [each for each in arguments if isinstance(each, Tensor)]
    if not tensors:
        return None
    dtype = str(next((tensor for tensor in tensors if tensor.is_floating_point()), tensors[0]).dtype).removeprefix(
        "torch."
    )
    namespace, _, short = name.partition("::")
    if namespace.startswith("triton_"):  # its arguments are all that it reads and writes
        return Work(float(max(tensor.numel() for tensor in tensors)), sum(map(_size, tensors)), dtype, products=False)
    if namespace != "aten":
        return None
    packet = getattr(torch.ops.aten, short, None)
    called = None if packet is None else _called(packet, arguments)
    if called is None:
        return None
    plain, named, result, is_view, is_causal = called
    if is_view:
        return Work(0.0, 0.0, dtype, products=False)
    results = [
        value for value in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(value, Tensor)
    ]
    read = tensors[1:] if short in _ONLY_WRITE | _GATHER else tensors
    moved = sum(map(_size, read)) + sum(map(_size, results)) * (2 if short in _GATHER else 1)
    formula = flop_registry.get(getattr(torch.ops.aten, short.replace("_for_cpu", ""), None))
    if formula is not None:
        counted = float(formula(*plain, **named, out_val=result))
        # The formulas count what a causal mask leaves out, and kernels that know of the mask do not compute it.
        return Work(counted * (0.5 if is_causal else 1.0), moved, dtype, products=True)
    return Work(float(max(tensor.numel() for tensor in (*tensors, *results))), moved, dtype, products=False)


def _argument(shape: Any, kind: str, stride: Any, value: str) -> Any:
    if kind in _DTYPES:
        return torch.empty_strided(shape, stride, dtype=_DTYPES[kind], device="meta")
    if kind == "TensorList":
        raise ValueError("the trace has no dtypes of lists")
    if value == "":
        return None
    return ast.literal_eval(value)


def _size(tensor: Tensor) -> float:
    """Return its bytes; what is repeated by a stride of 0 counts once."""
    count = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= length if stride else min(length, 1)
    return float(count * tensor.element_size())


def _called(packet: Any, arguments: Sequence[Any]) -> tuple[list[Any], dict[str, Any], Any, bool, bool] | None:
    """Call the overload that takes these arguments; return its arguments, its result, and if it is a view or causal."""
    for overload in (getattr(packet, name) for name in packet.overloads()):
        taken = overload._schema.arguments
        if len(taken) != len(arguments):
            continue
        pairs = list(zip(taken, arguments, strict=True))
        plain = [value for argument, value in pairs if not argument.kwarg_only]
        named = {argument.name: value for argument, value in pairs if argument.kwarg_only}
        try:
            result = overload(*plain, **named)
        except (RuntimeError, TypeError, NotImplementedError, ValueError, IndexError):
            continue
        return (
            plain,
            named,
            result,
            overload.is_view,
            any(argument.name == "is_causal" and value for argument, value in pairs),
        )
    return None
