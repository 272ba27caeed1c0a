"""What the adversary knows about a function of tensors."""

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
    """A function of tensors, an independent reference, and how to draw arguments; the relations follow from it.

    Attributes:
        caller: calls the function: `Host(function)`, or a stand-in for one in another process.
        reference: the same function of the same arguments, written for exactness. It is run on the CPU in float64 with
            autograd, and computes in the dtype of its inputs.
        example: draws arguments: see `drawing.Draw`.
        dtypes: those to try. A function may refuse a dtype by an exception.
        differentiable: whether gradients are due.
        deterministic: whether equal calls give equal bits.
        waits: whether it may wait for the GPU.
        constants: sizes in its source, around which sizes are tried.
        largest: elements of all tensors of a call, at most.
        tf32: whether float32 products may round their factors to 10 bits.
        slack: times every bound.
    """

    caller: Caller
    reference: Callable[..., Any]
    example: Callable[[Draw], Arguments]
    dtypes: tuple[str, ...] = ("float32", "float64", "bfloat16", "float16")
    differentiable: bool = True
    deterministic: bool = True
    waits: bool = True
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
        """One that is called in this process."""
        return cls(Host(function), reference, example, **more)
