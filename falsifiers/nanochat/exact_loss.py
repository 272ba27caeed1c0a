"""F-GB10-FLCE-EXACT-001: a loss that never computes all logits has the value and the gradients of the plain one."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from falsifiers.nanochat.head_loss_cases import HALF, cases, first_cases, question
from falsifiers.nanochat.head_loss_state import state_check
from falsifiers.nanochat.head_question import HeadQuestion
from falsifiers.nanochat.oracle.head_loss import Truth, truth
from falsifiers.nanochat.subject import Answer, HeadLoss
from harness import Trial


def falsify(trial: Trial[HeadLoss]) -> None:
    """Compare loss and gradients with float64, case by case; the contract bounds the errors of each precision.

    Then check that the loss depends on its arguments alone.
    """
    devices: set[str] = set()
    state = state_check(trial)

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        inputs = question(case, trial.device)
        right = truth(inputs)  # before the call, because a subject may overwrite its inputs
        with trial.subject_fault(), state.watched(inputs.hidden, inputs.weight, inputs.targets, inputs.upstream):
            answer = trial.subject(inputs)
            devices.update(tensor.device.type for tensor in (answer.loss, answer.grad_hidden, answer.grad_weight))
        return _errors(inputs, answer, right)

    parameters = trial.parameters
    first = first_cases(parameters)
    tried = trial.search(cases(parameters), check, examples=parameters["cases"], first=first)
    trial.measure(cases=tried)
    state.measure(tried)
    trial.resolve(device="+".join(sorted(devices)))


def _errors(question: HeadQuestion, answer: Answer, right: Truth) -> dict[str, float]:
    """Return the measurements that the contract bounds, by name.

    Logits in half precision are exact, so the scale of an error is the sum of the terms of each gradient element. In
    other dtypes a logit's error is relative to the largest logit, so the scale is the gradient's largest element.
    """
    precision = str(question.hidden.dtype).removeprefix("torch.")
    of_loss = _largest((answer.loss.double() - right.loss).abs() / right.loss_size.clamp_min(1.0))
    grad_hidden = right.grad_hidden * float(question.frozen != "hidden")
    grad_weight = right.grad_weight * float(question.frozen != "weight")
    errors = ((answer.grad_hidden.double() - grad_hidden).abs(), (answer.grad_weight.double() - grad_weight).abs())
    sizes = (right.hidden_size, right.weight_size)
    if precision not in HALF:
        least = torch.finfo(torch.float64).tiny  # without rows there is no size
        worst = [
            _largest(error / size.amax().clamp_min(least))
            for error, size in zip(errors, sizes, strict=True)
            if error.numel()
        ]
        return {f"loss_errors_{precision}": of_loss, f"gradient_errors_{precision}": _largest(torch.tensor(worst))}
    limits = torch.finfo(question.hidden.dtype)
    hidden, head = (
        _largest(error / (limits.eps / 2.0 * (size + limits.tiny))) for error, size in zip(errors, sizes, strict=True)
    )
    sums = "head_roundings" if question.float32_sums else "head_roundings_of_sums"
    return {"loss_errors_half": of_loss, "hidden_roundings": hidden, sums: head}


def _largest(errors: Tensor) -> float:
    """Return the largest error; NaN if one is, infinity for a number that is not finite, and 0 if there is none."""
    if not errors.numel():
        return 0.0
    worst = float(errors.max())
    return worst if math.isnan(worst) else abs(worst)
