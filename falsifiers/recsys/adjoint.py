"""F-HSTU-ADJOINT-001: in float64, the output has its definition's value, and the gradients are its derivatives."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from falsifiers.recsys.attention_cases import cases, first_cases, question
from falsifiers.recsys.oracle.hstu import truth
from falsifiers.recsys.subject import Attention, Question
from harness import Trial

_STEP = 1e-3


def falsify(trial: Trial[Attention]) -> None:
    """Compare outputs with the definition, and gradients along a direction with differences of the subject's output."""

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        inputs = question({**case, "dtype": "float64"}, "cpu")
        generator = torch.Generator().manual_seed(case["seed"] + 1)
        leaves = (inputs.q, inputs.k, inputs.v)
        toward = tuple(torch.randn(leaf.shape, generator=generator, dtype=torch.float64) for leaf in leaves)
        with trial.subject_fault():
            answer = trial.subject(inputs)
            near, far = (_change(trial, inputs, toward, step) for step in (_STEP, 2.0 * _STEP))
        along = (4.0 * near - far) / 3.0
        gradients = (answer.dq, answer.dk, answer.dv)
        given = sum(float((gradient * way).sum()) for gradient, way in zip(gradients, toward, strict=True))
        size = max(sum(float((gradient**2).sum()) for gradient in gradients) ** 0.5, 1e-12)
        right = truth(inputs).out
        wrong = (answer.out - right.value).norm(dim=-1) / right.noise.norm(dim=-1)
        return {
            "errors": abs(given - along) / size,
            "output_errors": float(wrong.max()) if wrong.numel() else 0.0,
        }

    parameters = trial.parameters
    first = [case for case in first_cases(parameters) if case["dtype"] == "bfloat16"][: parameters["cases"]]
    trial.measure(cases=trial.search(cases(parameters), check, examples=parameters["cases"], first=first))
    trial.resolve(device="cpu")


def _change(trial: Trial[Attention], question: Question, toward: tuple[Tensor, ...], step: float) -> float:
    """Return the central difference of the sum of `grad_output * output`."""
    values = []
    for by in (step, -step):
        q, k, v = (tensor + by * way for tensor, way in zip((question.q, question.k, question.v), toward, strict=True))
        values.append(
            float((trial.subject(dataclasses.replace(question, q=q, k=k, v=v)).out * question.grad_output).sum())
        )
    return (values[0] - values[1]) / (2.0 * step)
