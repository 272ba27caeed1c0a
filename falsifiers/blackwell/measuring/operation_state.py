"""Whether each operation of a backend depends on its arguments alone, whatever it was asked before."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from falsifiers.blackwell.oracle import operations
from falsifiers.blackwell.reference.backend import Backend
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import StateCheck

_RELATIONS: Final = (
    "value", "refilled", "inputs_kept", "settings_kept", "no_shared_memory", "outputs_kept", "plain_tensors",
)  # fmt: skip
_SLACK: Final = 8.0
"""Times the bound of a relation: shaders may compute exponentials and roots to a few units in the last place."""


class OperationChecks:
    """The checks of a backend's operations in float32."""

    def __init__(self, trial: Trial[Any], backend: Callable[[], Backend], *also: str) -> None:
        """Make them. Do so before CUDA is used; the backend is asked for once, by the first call in a process.

        All calls there have the same backend, so that what it remembers itself shows.

        Args:
            also: names of further relations.
        """
        once = cache(backend)
        more: Any = {"dtypes": ("float32",), "differentiable": False, "slack": _SLACK}
        self._checks = {
            name: StateCheck(trial, _asking(once, name), formula, example, (*_RELATIONS, *also), **more)
            for name, formula, example in _OPERATIONS
        }

    def violations(self) -> list[str]:
        """Those of every operation, each with its name."""
        return [f"{name}: {text}" for name, check in self._checks.items() for text in check.violations()]


def _asking(backend: Callable[[], Backend], name: str) -> Callable[..., Any]:
    def asked(*tensors: Tensor, **numbers: Any) -> Any:
        return getattr(backend(), name)(*tensors, **numbers)

    return asked


def _alike(draw: Draw, count: int) -> tuple[Tensor, ...]:
    rows, columns = draw.size("rows"), draw.size("columns")
    return tuple(draw.tensor(rows, columns) for _ in range(count))


def _factors(draw: Draw) -> Any:
    batch, rows, inner, columns = (draw.size(name) for name in ("batch", "rows", "inner", "columns"))
    ways = {name: draw.choice(name, False, True) for name in ("transpose_a", "transpose_b")}
    a = draw.tensor(*((batch, inner, rows) if ways["transpose_a"] else (batch, rows, inner)))
    b = draw.tensor(*((batch, columns, inner) if ways["transpose_b"] else (batch, inner, columns)))
    return (a, b), ways


def _norm(draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = draw.size("rows"), draw.size("columns")
    return draw.tensor(rows, columns), draw.tensor(columns), draw.tensor(rows, columns)


def _eps(draw: Draw) -> dict[str, float]:
    return {"eps": draw.choice("eps", 1e-6, 0.1)}


def _heads(draw: Draw) -> Any:
    shape = draw.size("batch"), draw.size("heads"), draw.size("positions"), draw.size("width", multiple_of=2)
    return (draw.tensor(*shape),), {"theta": draw.choice("theta", 1e6, 1e2)}


def _scores(draw: Draw) -> tuple[Tensor, Tensor]:
    """Scores of a group of queries for each key head."""
    keys = draw.size("keys")
    shape = draw.size("batch"), draw.size("heads"), draw.size("group") * keys, keys
    return draw.tensor(*shape), draw.tensor(*shape)


def _scale(draw: Draw) -> dict[str, float]:
    return {"scale": draw.choice("scale", 0.5, 2.0)}


_OPERATIONS: Final = (
    ("matmul", operations.product, _factors),
    ("rms_norm", operations.rms_norm, lambda draw: (_norm(draw)[:2], _eps(draw))),
    ("rms_norm_backward", operations.rms_norm_gradients, lambda draw: (_norm(draw), _eps(draw))),
    ("rope", operations.rope, _heads),
    ("rope_backward", operations.rope_gradient, _heads),
    ("causal_softmax", operations.softmax, lambda draw: (_scores(draw)[:1], _scale(draw))),
    ("causal_softmax_backward", operations.softmax_gradient, lambda draw: (_scores(draw), _scale(draw))),
    ("silu_gate", operations.silu_gate, lambda draw: _alike(draw, 2)),
    ("silu_gate_backward", operations.silu_gate_gradients, lambda draw: _alike(draw, 3)),
    ("add", torch.add, lambda draw: _alike(draw, 2)),
)
"""By the name of each operation, its formula, and what draws its arguments."""
