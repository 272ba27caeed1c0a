"""The reference's loss agrees with formulas that the test has written itself."""

from __future__ import annotations

import math

import pytest
import torch

from falsifiers.distill.measuring.held_out import divergence, log_probabilities, surprise
from falsifiers.distill.reference.loss import distillation_loss

ALPHA, TEMPERATURE = 0.3, 4.0


def logits(seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Skewed logits [2, 5, 11]."""
    return 4 * torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture
def labels() -> torch.Tensor:
    """Token ids [2, 5]."""
    return torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(3))


def by_hand(student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor) -> float:
    """The loss in plain Python, token by token. No function of torch does the arithmetic."""

    def softmax(row: list[float], temperature: float) -> list[float]:
        powers = [math.exp(value / temperature) for value in row]
        return [power / sum(powers) for power in powers]

    total, rows = 0.0, list(zip(student.flatten(0, 1).tolist(), teacher.flatten(0, 1).tolist(), strict=True))
    for (of_student, of_teacher), label in zip(rows, labels.flatten().tolist(), strict=True):
        p, q = softmax(of_teacher, TEMPERATURE), softmax(of_student, TEMPERATURE)
        kl = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        total += ALPHA * -math.log(softmax(of_student, 1.0)[label]) + (1 - ALPHA) * TEMPERATURE**2 * kl
    return total / len(rows)


def test_the_loss_is_the_formula(labels: torch.Tensor) -> None:
    """In float64 the value agrees with the formula, and in float32 within 1e-4 (SPEC-DISTILL-001)."""
    student, teacher = logits(1), logits(2)
    expected = by_hand(student, teacher, labels)
    exact = distillation_loss(student, teacher, labels, alpha=ALPHA, temperature=TEMPERATURE)
    single = distillation_loss(student.float(), teacher.float(), labels, alpha=ALPHA, temperature=TEMPERATURE)
    assert exact.item() == pytest.approx(expected, rel=1e-12)
    assert single.item() == pytest.approx(expected, abs=1e-4)


def test_the_falsifiers_own_formula_agrees_with_it(labels: torch.Tensor) -> None:
    """Two implementations that share no code give one value."""
    student, teacher = logits(1), logits(2)
    own = ALPHA * surprise(student, labels) + (1 - ALPHA) * TEMPERATURE**2 * divergence(teacher, student, TEMPERATURE)
    assert own.item() == pytest.approx(by_hand(student, teacher, labels), rel=1e-12)


def test_the_gradient_is_the_closed_form(labels: torch.Tensor) -> None:
    """alpha * (softmax(s) - onehot) + (1 - alpha) * T * (softmax(s/T) - softmax(t/T)), over the number of tokens."""
    student, teacher = logits(1).requires_grad_(True), logits(2)
    distillation_loss(student, teacher, labels, alpha=ALPHA, temperature=TEMPERATURE).backward()
    onehot = torch.nn.functional.one_hot(labels, 11)
    soft = (student / TEMPERATURE).softmax(-1) - (teacher / TEMPERATURE).softmax(-1)
    expected = (ALPHA * (student.softmax(-1) - onehot) + (1 - ALPHA) * TEMPERATURE * soft) / labels.numel()
    torch.testing.assert_close(student.grad, expected.detach(), rtol=1e-10, atol=1e-14)


def test_the_divergence_has_a_direction() -> None:
    """KL(teacher || student) differs from KL(student || teacher), and is zero exactly if the two agree."""
    student, teacher = logits(1), logits(2)
    assert divergence(teacher, student, 1.0).item() != pytest.approx(divergence(student, teacher, 1.0).item(), rel=0.01)
    assert divergence(teacher, teacher, 1.0).item() == 0.0


def test_probabilities_survive_large_logits() -> None:
    """Logits of a thousand do not overflow, and the order of the others stays."""
    got = log_probabilities(torch.tensor([1000.0, 0.0, -1000.0])).tolist()
    assert got == pytest.approx([0.0, -1000.0, -2000.0])
