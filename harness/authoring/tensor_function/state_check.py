"""Relations of state, layout and purity, for a falsifier that compares values and gradients itself.

check = StateCheck(trial, loss, reference, example)    # before the falsifier uses CUDA
...
check.measure(trial.search(...))                       # `violations`: empty for a correct function
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor

from harness.authoring.faults import NotMeasured
from harness.authoring.tensor_function.catalogue import ON_REQUEST, RELATIONS, try_relations
from harness.authoring.tensor_function.drawing import Arguments, Draw
from harness.authoring.tensor_function.function import TensorFunction
from harness.authoring.tensor_function.surroundings import changes, surroundings
from harness.authoring.tensor_function.tolerance import UnfitReference
from harness.authoring.trial import Trial

__all__ = ["FEW_CALLS", "STATE", "VALUES_AND_STATE", "StateCheck"]

STATE: Final = (
    "history", "refilled", "layouts", "no_growth", "inputs_kept", "settings_kept", "no_shared_memory", "outputs_kept",
    "plain_tensors", "other_stream", "nan_comes_out", "indices_checked", "arguments_checked", "shapes_checked",
)  # fmt: skip
"""Relations of state, layout and purity, and of invalid arguments: NaN, bad indices, mismatched shapes."""
VALUES_AND_STATE: Final = ("value", "gradient", "special_values", *STATE)
"""`STATE` and the relations of values in every dtype, for a falsifier with few cases of its own."""
FEW_CALLS: Final = (
    "refilled", "inputs_kept", "settings_kept", "no_shared_memory", "outputs_kept", "plain_tensors", "nan_comes_out",
    "arguments_checked", "shapes_checked",
)  # fmt: skip
"""Relations that need about a dozen calls, for a function in Triton's interpreter."""


_GPU_ONLY: Final = {name for name, relation in {**RELATIONS, **ON_REQUEST}.items() if relation.needs_gpu}


class StateCheck:
    """Tests whether earlier calls, memory, layouts and streams affect a call, and whether a call changes its inputs."""

    def __init__(
        self,
        trial: Trial[Any],
        function: Callable[..., Any],
        reference: Callable[..., Any],
        example: Callable[[Draw], Arguments],
        relations: Sequence[str] = STATE,
        **more: Any,
    ) -> None:
        """Fork the server of fresh processes.

        Args:
            function: calls the trial's subject. Read `trial.subject` before this call, so that forks share it.
            reference, example: see `TensorFunction`.
            relations: names of the relations to test.
            more: further fields of `TensorFunction`.

        Raises:
            RuntimeError: CUDA is already initialized.
        """
        self._trial, self._relations = trial, relations
        self._function = TensorFunction.of(function, reference, example, **more)
        self._seen: dict[str, None] = {}

    @contextmanager
    def watched(self, *tensors: Tensor) -> Iterator[None]:
        """Check that a call of the subject in the block changes neither these inputs nor global settings."""
        before, copies = surroundings(), [tensor.clone() for tensor in tensors]
        yield
        changed = [f"settings_kept: {what} is changed by a case" for what in changes(before)]
        if not all(map(torch.equal, tensors, copies)):
            changed.append("inputs_kept: a case changes its inputs")
        self._seen |= dict.fromkeys(changed)

    def measure(self, tried: int) -> None:
        """Measure `violations`, unless the trial's search ended early.

        A search ends early if a case refutes a mutant, or if it replays one case.

        Args:
            tried: the number of cases that the search tried.
        """
        if tried == self._trial.parameters["cases"]:
            self._trial.measure(violations=self.violations())

    def violations(self) -> list[str]:
        """Return the violations, each with its relation and smallest case; empty for a correct function.

        Raises:
            NotMeasured: the reference cannot be evaluated in float64, or the function refuses every dtype.
        """
        device = self._trial.device
        names = [name for name in self._relations if device.startswith("cuda") or name not in _GPU_ONLY]
        guard = self._trial.subject_fault
        try:
            results = try_relations(self._function, names, device=device, seed=self._trial.seed, guard=guard)
        except UnfitReference as error:
            raise NotMeasured(str(error)) from error
        if not results.accepted:
            raise NotMeasured(f"the function refuses every dtype: {'; '.join(results.refused.get('value', []))}")
        return [*self._seen, *(f"{name}: {text}" for name, texts in results.violations.items() for text in texts)]
