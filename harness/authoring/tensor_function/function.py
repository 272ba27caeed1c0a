"""The description of a function of tensors from which its tests are derived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.authoring.tensor_function.call import Caller
from harness.authoring.tensor_function.drawing import Arguments, Draw
from harness.authoring.tensor_function.hosting import Host

__all__ = ["TensorFunction"]


@dataclass(frozen=True)
class TensorFunction:
    """A function of tensors, an independent reference, and a generator of arguments.

    Attributes:
        caller: calls the function: `Host(function)`, or a proxy for a function in another process.
        reference: an independent implementation for the same arguments. It runs on the CPU in float64 with autograd,
            and must compute in the dtype of its inputs.
        example: draws arguments; see `drawing.Draw`.
        dtypes: the dtypes to try. The function may refuse a dtype by an exception.
        differentiable: whether the function supports gradients.
        deterministic: whether equal calls give bitwise equal results.
        waits: whether the function may synchronize with the GPU.
        any_layout: whether every layout of its tensors is supported; else it may refuse one by an exception.
        constants: integers from its source, such as block sizes. Sizes near them are tried.
        largest: maximum number of elements of all tensors of a call together.
        tf32: whether float32 products may round their factors to TF32's 10 bits.
        slack: a factor for every error bound.
    """

    caller: Caller
    reference: Callable[..., Any]
    example: Callable[[Draw], Arguments]
    dtypes: tuple[str, ...] = ("float32", "float64", "bfloat16", "float16")
    differentiable: bool = True
    deterministic: bool = True
    waits: bool = True
    any_layout: bool = False
    constants: tuple[int, ...] = ()
    largest: int = 1 << 14
    tf32: bool = False
    slack: float = 1.0

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        reference: Callable[..., Any],
        example: Callable[[Draw], Arguments],
        **more: Any,
    ) -> TensorFunction:
        """Describe a function that is called in this process. `more` are further fields."""
        return cls(Host(function), reference, example, **more)
