"""A call of a function of tensors, and its result. Both are plain data, so they can be sent to another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

__all__ = ["Answer", "Call", "Caller", "filled", "template"]

_TENSOR = "tensor"


@dataclass(frozen=True)
class Call:
    """The arguments of a call, and how it is made.

    Attributes:
        tensors: the tensor arguments, dense.
        arguments: `{"args": […], "kwargs": {…}}` as JSON; `{"tensor": 2}` stands for tensor 2.
        upstream: the gradient of each output; without any, no gradient is computed.
        grad_inputs: the indices of the tensors that require a gradient.
        layouts: the layout of each tensor (`placed_memory.LAYOUTS`); contiguous by default.
        upstream_layout: the layout of the upstream gradients.
        memory: `new` memory; or, as in the last call with this value, the same tensor `objects`, or new objects at the
            same `addresses`.
        context: how the function is called: one of `hosting.CONTEXTS`.
        twice: the indices of two tensors that are the same object; empty if all differ.
        second: factors of the gradients. The sum of the products is differentiated for a double backward.
    """

    tensors: tuple[Tensor, ...]
    arguments: Any
    upstream: tuple[Tensor, ...] = ()
    grad_inputs: tuple[int, ...] = ()
    layouts: tuple[str, ...] = ()
    upstream_layout: str = "contiguous"
    memory: str = "new"
    context: str = "plain"
    twice: tuple[int, ...] = ()
    second: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The result of a call.

    Attributes:
        outputs: copies of the outputs, in order.
        gradients: the gradients of `Call.grad_inputs`, in order; zeros if no output depends on the input.
        detached: whether gradients were requested and no output requires one.
        complaints: side effects of the call, as pairs of the violated relation and a sentence.
        digest: SHA-256 of the bytes, dtypes and shapes of outputs and gradients.
        raised: the type and text of the exception; empty if the call returned.
        crashed: how the fresh process ended, or the error that made the CUDA context unusable; empty without either.
        has_nan: whether an output contains NaN.
        untried: why a fresh process could not make the call; empty if it could.
        needs_gpu: whether the exception came from the path to a GPU: `torch.cuda`, Triton's driver, or an operator of
            torch that has no kernel for the CPU.
    """

    outputs: tuple[Tensor, ...] = ()
    gradients: tuple[Tensor, ...] = ()
    detached: bool = False
    complaints: tuple[tuple[str, str], ...] = ()
    digest: str = ""
    raised: str = ""
    crashed: str = ""
    has_nan: bool = False
    untried: str = ""
    needs_gpu: bool = False


class Caller(Protocol):
    """Calls one function of tensors. `hosting.Host` calls it in this process."""

    def call(self, call: Call) -> Answer:
        """Call the function."""
        ...

    def call_fresh(self, call: Call) -> Answer:
        """Call the function in a process that has not called it before. The answer has no tensors."""
        ...

    def growth(self, call: Call, times: int) -> tuple[int, int]:
        """Call the function `times` times with new tensors.

        Returns:
            the increase in live tensors, and in allocated bytes of GPU memory.
        """
        ...

    def repeated(
        self, call: Call, places: tuple[int, ...], times: int, outputs: tuple[int, ...]
    ) -> tuple[str, list[str]]:
        """Call the function with the rows of some tensors repeated.

        Args:
            places: the tensors that are repeated along their first dimension.
            outputs: the outputs whose rows have to repeat.

        Returns:
            the exception, empty without one; and the outputs whose rows do not repeat.
        """
        ...

    def is_operator(self) -> bool:
        """Whether the function is a custom operator of `torch.library`."""
        ...

    def operator_check(self, call: Call) -> str:
        """Return the failures of `torch.library.opcheck`; empty if there are none."""
        ...


def template(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[Tensor], dict[str, Any]]:
    """Separate the tensors from arguments.

    Returns:
        the tensors, and the arguments as JSON with an index in place of each tensor.
    """
    tensors: list[Tensor] = []

    def cut(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            return {_TENSOR: len(tensors) - 1}
        return [cut(item) for item in value] if isinstance(value, list | tuple) else value

    return tensors, {
        "args": [cut(value) for value in args],
        "kwargs": {name: cut(value) for name, value in kwargs.items()},
    }


def filled(arguments: Any, tensors: list[Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Reverse `template`. Returns positional arguments and keyword arguments."""

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            return tensors[value[_TENSOR]]
        return [put(item) for item in value] if isinstance(value, list) else value

    return [put(argument) for argument in arguments["args"]], {
        name: put(argument) for name, argument in arguments["kwargs"].items()
    }
