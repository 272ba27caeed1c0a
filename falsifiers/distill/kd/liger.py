"""F-DISTILL-LIGER-KD-001: the formula of Liger-Kernel's fused distillation loss, and how to obtain ours from it."""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.distill.kd.cases import cases, first_cases, question
from falsifiers.distill.kd.formulas import truth
from falsifiers.distill.kd.state import kd_arguments
from falsifiers.distill.kd.subject import IGNORED, Answer, Question
from falsifiers.distill.measuring.held_out import log_probabilities
from falsifiers.distill.measuring.largest import largest
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import STATE, StateCheck

_BETAS = (0.0, 0.1, 0.5, 0.9, 1.0)
_RELATIONS = tuple(relation for relation in STATE if relation != "shapes_checked")
"""Liger's kernel leaves the check of shapes to its callers: it answers for a head that lacks a token."""


class WeightedKdLoss(Protocol):
    """A loss of two weighted parts; built as `Subject(setting)`."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """`hard` times the cross entropy plus `soft` times the generalised Jensen-Shannon divergence of `beta`.

        The question's alpha is ignored.
        """
        ...


def falsify(trial: Trial[WeightedKdLoss]) -> None:
    """Compare with the formula of its source, and check that a soft weight of (1 - alpha) T^2 gives our loss."""
    devices: set[str] = set()
    state = _state_check(trial)

    def check(case: Mapping[str, Any]) -> dict[str, float]:
        inputs, beta = question(case, trial.device), case["beta"]
        expected, magnitude = _formula(inputs, beta)
        right = truth(inputs)  # before the call, because a subject may overwrite its inputs
        with trial.subject_fault(), state.watched(inputs.student, inputs.student_head, inputs.teacher, inputs.labels):
            plain = trial.subject(inputs, hard=inputs.alpha, soft=1.0 - inputs.alpha, beta=beta)
            squared = (1.0 - inputs.alpha) * inputs.temperature**2
            rescaled = trial.subject(inputs, hard=inputs.alpha, soft=squared, beta=0.0)
            devices.update({plain.loss.device.type, rescaled.head_gradient.device.type})
            losses = float(plain.loss), float(rescaled.loss)
        return {
            "errors": abs(losses[0] - expected) / max(1.0, magnitude),
            "errors_as_ours": abs(losses[1] - right.loss) / max(1.0, right.magnitude),
            "gradient_errors_as_ours": largest(
                float((actual.double() - true).abs().max()) / max(float(true.abs().max()), 1e-3 * most, 1e-30)
                for actual, true, most in zip(
                    (rescaled.student_gradient, rescaled.head_gradient),
                    (right.student_gradient, right.head_gradient),
                    right.largest,
                    strict=True,
                )
            ),
        }

    drawn = st.tuples(cases(trial.parameters, ("float32",)), st.sampled_from(_BETAS)).map(
        lambda pair: {**pair[0], "beta": pair[1]}
    )
    small = [case for case in first_cases(("float32",)) if case["rows"] <= trial.parameters["largest_rows"]]
    first = [{**case, "beta": beta} for case in small for beta in (0.0, 0.1)]
    tried = trial.search(drawn, check, examples=trial.parameters["cases"], first=first)
    trial.measure(cases=tried)
    state.measure(tried)
    trial.resolve(device="+".join(sorted(devices)))


def _state_check(trial: Trial[WeightedKdLoss]) -> StateCheck:
    """Checks that the loss depends on its arguments alone."""
    subject = trial.subject

    def loss(*tensors: Tensor, temperature: float, upstream: float, **weights: float) -> tuple[Tensor, ...]:
        answer = subject(Question(*tensors, 0.0, temperature, upstream), **weights)
        return answer.loss, answer.student_gradient, answer.head_gradient

    def formulas(
        *tensors: Tensor, temperature: float, upstream: float, hard: float, soft: float, beta: float
    ) -> tuple[Tensor, ...]:
        leaves = [tensor.detach().requires_grad_() for tensor in tensors[:2]]
        question = Question(*leaves, *tensors[2:], 0.0, temperature, upstream)
        with torch.enable_grad():
            surprises, divergences, _ = _parts(question, beta)
            counts = question.labels != IGNORED
            terms = torch.where(counts, hard * surprises + soft * divergences, 0.0)
            mean = terms.sum() / counts.sum().clamp_min(1)
        return mean.detach(), *torch.autograd.grad(upstream * mean, leaves)

    def arguments(draw: Draw) -> Any:
        tensors, _ = kd_arguments(draw)
        names = {"temperature": (2.0, 0.5), "upstream": (1.0, -3.0), "hard": (0.3, 0.8), "soft": (0.7, 0.1)}
        numbers = {name: draw.choice(name, *values) for name, values in names.items()}
        return tensors, {**numbers, "beta": draw.choice("beta", 0.1, 0.9)}

    return StateCheck(trial, loss, formulas, arguments, _RELATIONS, dtypes=("float32",), differentiable=False)


def _parts(question: Question, beta: float) -> tuple[Tensor, Tensor, Tensor]:
    """The cross entropy and the divergence of each row [rows], and the size of the divergence's terms.

    JSD_beta = beta KL(t || m) + (1 - beta) KL(s || m) with m = beta t + (1 - beta) s. JSD_0 is KL(t || s), and JSD_1 is
    KL(s || t).
    """
    logits = question.student.double() @ question.student_head.double().T
    log_q = log_probabilities(logits, question.temperature)
    log_p = log_probabilities(question.teacher.double() @ question.teacher_head.double().T, question.temperature)
    if beta in (0.0, 1.0):
        p, q = (log_p, log_q) if beta == 0.0 else (log_q, log_p)
        divergences = (p.exp() * (p - q)).sum(dim=-1)
    else:
        mixed = torch.logaddexp(log_p + math.log(beta), log_q + math.log(1.0 - beta))
        of_teacher, of_student = ((tensor.exp() * (tensor - mixed)).sum(dim=-1) for tensor in (log_p, log_q))
        divergences = beta * of_teacher + (1.0 - beta) * of_student
    surprises = -log_probabilities(logits).gather(-1, question.labels.clamp_min(0).unsqueeze(-1)).squeeze(-1)
    sizes = log_p.exp() * (log_p.abs() + log_q.abs()) + log_q.exp() * (log_p.abs() + log_q.abs())
    return surprises, divergences, sizes.sum(dim=-1)


def _formula(question: Question, beta: float) -> tuple[float, float]:
    """`alpha * CE + (1 - alpha) * JSD_beta` without a factor T^2, and the size of its terms; both in float64.

    Both are averaged over the tokens that count.
    """
    surprises, divergences, sizes = _parts(question, beta)
    counts = question.labels != IGNORED
    rows = max(1, int(counts.sum()))
    terms, magnitudes = (
        question.alpha * surprises + (1.0 - question.alpha) * tensor for tensor in (divergences, sizes)
    )
    return float((terms * counts).sum() / rows), float((magnitudes * counts).sum() / rows)
