"""All relations by name, and the function that tests them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from harness.authoring.tensor_function import (
    relation_call_history,
    relation_cuda,
    relation_layouts,
    relation_many_rows,
    relation_torch_modes,
    relation_values,
)
from harness.authoring.tensor_function.adversary import Adversary, DeviceLost, Findings
from harness.authoring.tensor_function.function import TensorFunction
from harness.authoring.toolkit_log import log

__all__ = ["ON_REQUEST", "RELATIONS", "Relation", "try_relations"]


@dataclass(frozen=True)
class Relation:
    """A relation that holds for every correct function.

    Attributes:
        attempt: tests the relation. The first line of its docstring states the relation.
        needs_gpu: whether the relation can be violated only on a GPU.
    """

    attempt: Callable[[Adversary], None]
    needs_gpu: bool = False

    @property
    def text(self) -> str:
        """The relation in one sentence."""
        return (self.attempt.__doc__ or "").partition("\n")[0]


def inputs_kept(adversary: Adversary) -> None:
    """No call changes its inputs, the upstream gradient, or the memory around them."""


def settings_kept(adversary: Adversary) -> None:
    """No call changes a random state or a global setting of torch, also if settings differ from torch's defaults."""
    adversary.run(adversary.call_for(adversary.case(), gradients=False, context="other settings"))


def no_shared_memory(adversary: Adversary) -> None:
    """No output shares memory with an input, another output, or an earlier answer."""


def outputs_kept(adversary: Adversary) -> None:
    """No later call changes an earlier output or gradient."""


def plain_tensors(adversary: Adversary) -> None:
    """Outputs and gradients are plain tensors, not of a subclass that could override torch's functions."""


RELATIONS: Final[Mapping[str, Relation]] = {
    "value": Relation(relation_values.value),
    "gradient": Relation(relation_values.gradient),
    "sizes": Relation(relation_values.sizes),
    "history": Relation(relation_call_history.history),
    "refilled": Relation(relation_call_history.refilled),
    "repeats": Relation(relation_call_history.repeats),
    "layouts": Relation(relation_layouts.layouts),
    "upstream_layouts": Relation(relation_layouts.upstream_layouts),
    "same_tensor_twice": Relation(relation_values.same_tensor_twice),
    "special_values": Relation(relation_values.special_values),
    "nan_comes_out": Relation(relation_values.nan_comes_out),
    "nan_stays_apart": Relation(relation_values.nan_stays_apart),
    "indices_checked": Relation(relation_values.indices_checked),
    "arguments_checked": Relation(relation_values.arguments_checked),
    "no_grad_modes": Relation(relation_torch_modes.no_grad_modes),
    "autocast": Relation(relation_torch_modes.autocast),
    "compiled": Relation(relation_torch_modes.compiled),
    "double_backward": Relation(relation_torch_modes.double_backward),
    "operator_check": Relation(relation_torch_modes.operator_check),
    "no_growth": Relation(relation_call_history.no_growth),
    "inputs_kept": Relation(inputs_kept),
    "settings_kept": Relation(settings_kept),
    "no_shared_memory": Relation(no_shared_memory),
    "outputs_kept": Relation(outputs_kept),
    "plain_tensors": Relation(plain_tensors),
    "other_stream": Relation(relation_cuda.other_stream, needs_gpu=True),
    "no_host_wait": Relation(relation_cuda.no_host_wait, needs_gpu=True),
    "graph_replay": Relation(relation_cuda.graph_replay, needs_gpu=True),
    "other_device": Relation(relation_cuda.other_device, needs_gpu=True),
}
"""In the order of the tests. Relations of this module, without steps of their own, are checked in every call."""
ON_REQUEST: Final[Mapping[str, Relation]] = {
    "shapes_checked": Relation(relation_values.shapes_checked),
    "larger": Relation(relation_values.larger),
    "many_rows": Relation(relation_many_rows.many_rows, needs_gpu=True),
}
"""Relations that are tested only by name: many kernels leave checks to their callers, and sizes take long."""


def try_relations(
    function: TensorFunction,
    names: Iterable[str] | None = None,
    *,
    device: str = "cpu",
    seed: int = 0,
    guard: Callable[[], AbstractContextManager[Any]] = nullcontext,
    tell: Callable[[Findings], None] = lambda findings: None,
) -> Findings:
    """Test relations of a function.

        findings = try_relations(TensorFunction.of(silu_mul, reference, example))
        assert not findings.violations

    Args:
        names: names from `RELATIONS` and `ON_REQUEST`; by default all of `RELATIONS` that apply to the device.
        device: `cpu` or `cuda:0`.
        seed: equal seeds draw equal cases.
        guard: returns a context manager for each call of the function, such as `trial.subject_fault`.
        tell: called after each relation with the findings so far.

    Raises:
        UnfitReference: the reference cannot be evaluated in float64.
    """
    is_on_gpu = device.startswith("cuda")
    chosen = (
        [name for name, relation in RELATIONS.items() if is_on_gpu or not relation.needs_gpu]
        if names is None
        else [*names]
    )
    adversary = Adversary(function, device=device, seed=seed, guard=guard)
    lost = False
    for name in chosen:
        if name == "gradient" and not function.differentiable:
            adversary.findings.inapplicable[name] = "no gradient is due"
        elif lost:
            adversary.findings.inapplicable[name] = "the GPU was lost before"
        else:
            try:
                if name != "value" and adversary.findings.accepted is None:
                    adversary.find_dtypes()
                if name == "value" or adversary.dtypes:
                    {**RELATIONS, **ON_REQUEST}[name].attempt(adversary)
            except DeviceLost as error:
                lost = True
                adversary.findings.tried[name] += 1
                adversary.findings.add(name, str(error))
        tried, problems = adversary.findings.tried[name], adversary.findings.violations.get(name, [])
        log(f"relation {name}: tried {tried} times, {len(problems)} violations")
        tell(adversary.findings)
    findings = adversary.findings
    findings.violations = {name: problems for name, problems in findings.violations.items() if name in chosen}
    return findings
