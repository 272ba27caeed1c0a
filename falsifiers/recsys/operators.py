"""F-HSTU-DISPATCH-001, -HEADDIM-GUARD-001, -CTX-GUARD-001 and -DTYPE-001: dispatch and guards of the operators.

The compute capability is simulated, so the claims cover the table and the guards, not the code of the named operators.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.recsys.attention_cases import question
from falsifiers.recsys.subject import Operators, Question, Way
from harness import Trial

_WAYS: tuple[Way, Way] = ("forward", "backward")


def falsify_dispatch(trial: Trial[Operators]) -> None:
    """Ask for the operator of every capability of the table, and of others."""
    parameters = trial.parameters
    table = dict(
        zip(parameters["capabilities"], zip(parameters["forward"], parameters["backward"], strict=True), strict=True)
    )

    def check(case: Mapping[str, Any]) -> dict[str, int]:
        wrong = elsewhere = 0
        for number, way in enumerate(_WAYS):
            name: str | None = None
            with trial.subject_fault():
                try:
                    name = trial.subject.operator(way, case["capability"])
                except ValueError:
                    name = None
            right = table[case["capability"]][number] if case["capability"] in table else None
            wrong += right is not None and name != right
            elsewhere += right is None and name is not None
        return {"wrong_operators": wrong, "operators_elsewhere": elsewhere}

    first = [{"capability": number} for number in (7, 8, 9, 10, 11, 12, 90, 100)]
    drawn = st.fixed_dictionaries({"capability": st.integers(0, 130)})
    trial.measure(cases=trial.search(drawn, check, examples=trial.parameters["cases"], first=first))
    trial.resolve(device="cpu")


def falsify_widths(trial: Trial[Operators]) -> None:
    """Run every head width on every capability, forward and backward."""
    supported = {number: trial.parameters[f"widths_on_{number}"] for number in (8, 9, 10)}

    def check(case: Mapping[str, Any]) -> dict[str, int]:
        accepted = _accepted(trial, _small(case, trial.device), case["capability"])
        right = case["width"] in supported[case["capability"]]
        return {
            "wrong_answers": sum(capability != right for capability in accepted),
            "ways_disagree": int(accepted[0] != accepted[1]),
        }

    first = [{"capability": capability, "width": width} for capability in supported for width in (32, 64, 128)]
    _run(trial, check, first)


def falsify_contextuals(trial: Trial[Operators]) -> None:
    """Run sequences with contextual rows, without them, and with a count of zero, on every capability."""

    def check(case: Mapping[str, Any]) -> dict[str, int]:
        capability = case["capability"]
        without = _small({**case, "contextuals": None}, trial.device)
        zeros = dataclasses.replace(without, num_contextuals=torch.zeros_like(without.offsets[1:]))
        with_contextuals = _small({**case, "contextuals": 2}, trial.device)
        with trial.subject_fault():
            pairs = zip(_tensors(trial, without, capability), _tensors(trial, zeros, capability), strict=True)
        accepted = _accepted(trial, with_contextuals, capability)
        key = "unrefused" if capability in trial.parameters["without_contextuals"] else "refused_elsewhere"
        return {
            "differing_tensors": sum(not torch.equal(is_accepted, other) for is_accepted, other in pairs),
            key: sum(is_accepted == (key == "unrefused") for is_accepted in accepted),
        }

    first = [{"capability": number, "width": 64} for number in (8, 9, 10)]
    _run(trial, check, first)


def falsify_dtypes(trial: Trial[Operators]) -> None:
    """Run each dtype on every capability, forward and backward."""

    def check(case: Mapping[str, Any]) -> dict[str, int]:
        accepted = _accepted(trial, _small(case, trial.device), case["capability"])
        right = case["dtype"] in ("bfloat16", "float16")
        return {"wrong_answers": sum(capability != right for capability in accepted)}

    dtypes = ("bfloat16", "float16", "float32", "float64")
    first = [{"capability": capability, "width": 64, "dtype": dtype} for capability in (8, 9, 10) for dtype in dtypes]
    _run(trial, check, first)


def _run(trial: Trial[Operators], check: Any, first: list[dict[str, Any]]) -> None:
    trial.measure(cases=trial.search(st.sampled_from(first), check, examples=len(first), first=first))
    trial.resolve(device=torch.device(trial.device).type)


def _small(case: Mapping[str, Any], device: str) -> Question:
    """Return inputs of two short sequences."""
    rest = {
        "dtype": "bfloat16", "lengths": [9, 4], "heads": 1, "value_width": case["width"], "targets": 1, "group": 1,
        "contextuals": None, "window": 0, "full": 0, "causal": True, "scaling": 1.0, "layout": "contiguous", "seed": 0,
    }  # fmt: skip
    return question({**rest, **case}, device)


def _accepted(trial: Trial[Operators], question: Question, capability: int) -> list[bool]:
    """Return whether forward and backward pass accept the inputs."""
    accepted = []
    for way in (trial.subject.forward, trial.subject.backward):
        with trial.subject_fault():
            try:
                way(question, capability)
                accepted.append(True)
            except (ValueError, AssertionError):
                accepted.append(False)
    return accepted


def _tensors(trial: Trial[Operators], question: Question, capability: int) -> tuple[Tensor, ...]:
    return (trial.subject.forward(question, capability), *trial.subject.backward(question, capability))
