"""The chunked loss agrees with the plain one in value and gradients, and refuses invalid arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from falsifiers.distill.kd.cases import cases, question
from falsifiers.distill.kd.formulas import truth
from falsifiers.distill.measuring.held_out import divergence, log_probabilities, surprise
from falsifiers.distill.reference.chunked import chunked_distillation_loss, eager_rows, rows_a_chunk
from falsifiers.distill.reference.kd import PlainKdLoss
from falsifiers.distill.reference.loss import distillation_loss
from harness import Setting

SMALL = {"largest_rows": 12, "largest_vocabulary": 40, "largest_width": 6}
SETTING = Setting({}, "cpu", 0, Path(), Path())


def chunked(case: Mapping[str, Any], chunk: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """Loss and both gradients of a case."""
    drawn = question(case, device)
    student, head = drawn.student.requires_grad_(), drawn.student_head.requires_grad_()
    loss = chunked_distillation_loss(
        student, head, drawn.teacher, drawn.teacher_head, drawn.labels,
        alpha=drawn.alpha, temperature=drawn.temperature, chunk=chunk,
    )  # fmt: skip
    return loss.detach(), *torch.autograd.grad(loss, (student, head), torch.full_like(loss, drawn.upstream))


@given(st.integers(0, 20_000), st.integers(1, 300_000))
def test_chunks_are_equal_and_small(rows: int, vocabulary: int) -> None:
    """The logits of a chunk take at most 320 MiB, and no fewer chunks would do.

    Chunks of Qwen2 at 4,096 tokens are tiles.
    """
    chunk = rows_a_chunk(rows, vocabulary)
    largest = (320 << 20) // (4 * vocabulary)
    assert 1 <= chunk <= largest
    assert -(-rows // chunk) <= max(1, -(-rows // largest))
    assert rows_a_chunk(4096, 151_936) == 512


@settings(deadline=None, max_examples=60)
@given(cases(SMALL, ("float64", "float32")), st.integers(1, 13))
def test_chunks_of_any_size_make_the_plain_loss(case: dict[str, Any], chunk: int) -> None:
    """Value and gradients agree to rounding, whatever positions are ignored."""
    drawn = question(case, "cpu")
    plain = PlainKdLoss(SETTING)(drawn)
    loss, *gradients = chunked(case, chunk)
    tolerance = 1e-4 if case["dtype"] == "float32" else 1e-11
    scale = max(1.0, truth(drawn).magnitude)
    assert float((loss - plain.loss).abs()) <= tolerance * scale
    for got, wanted, largest in zip(
        gradients, (plain.student_gradient, plain.head_gradient), truth(drawn).largest, strict=True
    ):
        assert float((got - wanted).abs().max()) <= tolerance * largest


def test_the_gradients_are_as_exact_as_float32_allows() -> None:
    """At a vocabulary of thousands, the gradients are within 1e-5 of float64, by norm."""
    case = {
        "dtype": "float32", "rows": 64, "vocabulary": 5000, "width": 32, "temperature": 4.0, "alpha": 0.3,
        "scale": 4.0, "skewed": True, "alike": False, "ignored": 0.25, "upstream": 1.0, "seed": 1,
    }  # fmt: skip
    right = truth(question(case, "cpu"))
    _, *gradients = chunked(case, 7)
    for got, wanted in zip(gradients, (right.student_gradient, right.head_gradient), strict=True):
        assert float((got.double() - wanted).norm() / wanted.norm()) < 1e-5


def test_half_precision_is_summed_in_float32() -> None:
    """The head's gradient of bfloat16 inputs is rounded once, at the end."""
    case = {
        "dtype": "bfloat16", "rows": 64, "vocabulary": 50, "width": 8, "temperature": 1.0, "alpha": 0.3,
        "scale": 1.0, "skewed": False, "alike": False, "ignored": 0.0, "upstream": 1.0, "seed": 1,
    }  # fmt: skip
    right = truth(question(case, "cpu"))
    loss, hidden, head = chunked(case, 2)
    assert (loss.dtype, hidden.dtype, head.dtype) == (torch.float32, torch.bfloat16, torch.bfloat16)
    assert float((head.double() - right.head_gradient).norm() / right.head_gradient.norm()) < 0.01


def test_batches_of_sequences_and_frozen_heads() -> None:
    """Leading dimensions are tokens. A tensor that requires no gradient gets none."""
    student, teacher = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 3, 5)
    heads = torch.randn(7, 4), torch.randn(7, 5)
    labels = torch.randint(7, (2, 3))
    loss = chunked_distillation_loss(student, heads[0], teacher, heads[1], labels, alpha=0.3, temperature=2.0)
    loss.backward()
    assert student.grad is not None
    assert student.grad.shape == student.shape
    assert heads[0].grad is None


def test_a_second_backward_pass_is_refused() -> None:
    """The first pass gives the gradients away, so a second one would return zeros or twice the value."""
    student, head = torch.randn(3, 4, requires_grad=True), torch.randn(7, 4)
    loss = chunked_distillation_loss(student, head, student, head, torch.zeros(3).long(), alpha=0.3, temperature=2.0)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError):
        loss.backward()


def test_what_does_not_belong_together_is_refused() -> None:
    """Labels of another length and another vocabulary are refused."""
    hidden, head, labels = torch.randn(3, 4), torch.randn(7, 4), torch.zeros(3).long()
    with pytest.raises(ValueError, match="do not belong"):
        chunked_distillation_loss(hidden, head, hidden, head, labels[:2], alpha=0.3, temperature=2.0)
    with pytest.raises(ValueError, match=r"7.*6"):
        chunked_distillation_loss(hidden, head, hidden, head[:6], labels, alpha=0.3, temperature=2.0)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("vocabulary", [3, 4096, 4097, 151_936])
def test_the_kernel_does_what_torch_does(vocabulary: int) -> None:
    """The sum of losses and every gradient agree with torch, with ignored rows, one with NaN, and logits beyond 88."""
    from falsifiers.distill.reference.chunked_triton import fused_rows

    generator = torch.Generator().manual_seed(0)
    logits, towards = (40.0 * torch.randn(33, vocabulary, generator=generator).cuda() for _ in range(2))
    labels = torch.randint(vocabulary, (33,), generator=generator).cuda()
    labels[::5] = -100
    towards[5, 0] = float("nan")
    tokens = (labels != -100).sum()
    for alpha, temperature in ((0.3, 4.0), (0.0, 1.0), (1.0, 2.0)):
        ours, theirs = logits.clone(), logits.clone()
        loss = fused_rows(ours, towards.clone(), labels, tokens, alpha, temperature)
        wanted = eager_rows(theirs, towards.clone(), labels, tokens, alpha, temperature)
        assert torch.allclose(loss, wanted, rtol=1e-5)
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-7, equal_nan=True)


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
