"""One call of a function of tensors, the way in which it is made, and the answer.

Calls and answers are values, so a caller may be in another process: see `harness run --isolate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

__all__ = ["Answer", "Call", "Caller", "filled", "template"]

_TENSOR = "tensor"


@dataclass(frozen=True)
class Call:
    """What is called with, and how.

    Attributes:
        tensors: contents of the tensors among the arguments, dense.
        arguments: `{"args": […], "kwargs": {…}}` as JSON; `{"tensor": 2}` stands for a tensor.
        upstream: the gradient of each output; if there is none, no gradient is computed.
        wanted: the places of the tensors that need a gradient.
        layouts: the layout of each tensor (`placed_memory.LAYOUTS`); contiguous by default.
        upstream_layout: that of the upstream gradients.
        memory: `new`, or `objects` and `addresses` for the same objects, or new objects at the same addresses, as in
            the last call with this value.
        context: how the function is called: one of `hosting.CONTEXTS`.
        twice: two places that get one object; empty if all are different.
        second: factors of the gradients, whose sum is differentiated again.
    """

    tensors: tuple[Tensor, ...]
    arguments: Any
    upstream: tuple[Tensor, ...] = ()
    wanted: tuple[int, ...] = ()
    layouts: tuple[str, ...] = ()
    upstream_layout: str = "contiguous"
    memory: str = "new"
    context: str = "plain"
    twice: tuple[int, ...] = ()
    second: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came of a call.

    Attributes:
        outputs: copies of the outputs, in their order.
        gradients: those of the wanted tensors, in their order; zeros if an output does not depend on one.
        detached: whether no output has a gradient, though one was wanted.
        complaints: what the call did beside computing: pairs of a relation and a sentence.
        digest: SHA-256 of all bytes, dtypes and shapes of outputs and gradients.
        raised: the exception in words; empty if it returned.
        crashed: how its process ended, for a call in a fresh process, or the error that the GPU does not get past;
            empty if there is none.
        has_nan: whether an output has a NaN.
    """

    outputs: tuple[Tensor, ...] = ()
    gradients: tuple[Tensor, ...] = ()
    detached: bool = False
    complaints: tuple[tuple[str, str], ...] = ()
    digest: str = ""
    raised: str = ""
    crashed: str = ""
    has_nan: bool = False


class Caller(Protocol):
    """Calls one function of tensors; `hosting.Host` does so in this process."""

    def call(self, call: Call) -> Answer:
        """Call it."""
        ...

    def call_fresh(self, call: Call) -> Answer:
        """Call it in a process that has not called it before. The answer has no tensors."""
        ...

    def growth(self, call: Call, times: int) -> tuple[int, int]:
        """Call it so often, with new tensors. Return how many more tensors live, and bytes of GPU memory."""
        ...

    def is_operator(self) -> bool:
        """Whether it is a custom operator of `torch.library`."""
        ...

    def operator_check(self, call: Call) -> str:
        """What `torch.library.opcheck` says against it; empty if nothing."""
        ...


def template(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[Tensor], dict[str, Any]]:
    """Take the tensors out of arguments.

    Returns: the tensors, and the JSON in which their places stand for them.
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
    """Put tensors into the JSON that `template` made: positional arguments, and those by name."""

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            return tensors[value[_TENSOR]]
        return [put(item) for item in value] if isinstance(value, list) else value

    return [put(argument) for argument in arguments["args"]], {
        name: put(argument) for name, argument in arguments["kwargs"].items()
    }
