"""Compares the result of a call with the reference, element by element."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.authoring.tensor_function.call import Answer
from harness.authoring.tensor_function.tolerance import Expected, Truth

__all__ = ["Excess", "differences", "worst"]

# Bound before any subject is imported, because a subject could replace them.
_cpu, _double, _where, _isfinite, _argmax = (
    torch.Tensor.cpu,
    torch.Tensor.double,
    torch.where,
    torch.isfinite,
    torch.argmax,
)
_abs, _eq, _isnan = torch.Tensor.abs, torch.eq, torch.isnan


@dataclass(frozen=True)
class Excess:
    """The element with the largest error relative to its bound."""

    what: str
    index: tuple[int, ...]
    actual: float
    expected: float
    bound: float

    @property
    def times(self) -> float:
        """The error divided by the bound; infinite if either is not a positive number."""
        error = abs(self.actual - self.expected)
        return error / self.bound if math.isfinite(error) and self.bound > 0 else math.inf

    def text(self) -> str:
        """Describe the element."""
        where = f" at {list(self.index)}" if self.index else ""
        return f"{self.what}{where} is {self.actual:.9g}, not {self.expected:.9g} within {self.bound:.2g}"


def differences(answer: Answer, truth: Truth, grad_inputs: tuple[int, ...], *, finite_only: bool = False) -> list[str]:
    """Compare an answer with the expected one. Returns a description of each error.

    Args:
        grad_inputs: the positions of the inputs that the gradients belong to.
        finite_only: compare only elements for which the expected value is finite.
    """
    if answer.raised:
        return [f"it raised {answer.raised}"]
    problems: list[str] = []
    if len(answer.outputs) != len(truth.outputs):
        return [f"it returned {len(answer.outputs)} tensors, not {len(truth.outputs)}"]
    numbered = enumerate(zip(answer.outputs, truth.outputs, strict=True))
    pairs = [(f"output {index}", output, expected) for index, (output, expected) in numbered]
    if truth.gradients and answer.detached:
        if any(bool(gradient.value.any()) for gradient in truth.gradients):
            problems.append("no output has a gradient, and the reference's has")
    else:
        gradients = zip(grad_inputs, answer.gradients, truth.gradients, strict=False)
        pairs += [(f"the gradient of tensor {index}", gradient, expected) for index, gradient, expected in gradients]
    for what, actual, expected in pairs:
        if tuple(actual.shape) != tuple(expected.value.shape):
            problems.append(f"{what} has the shape {tuple(actual.shape)}, not {tuple(expected.value.shape)}")
        elif actual.is_floating_point() != expected.value.is_floating_point():
            problems.append(f"{what} is {actual.dtype}, and the reference's {expected.value.dtype}")
        elif (excess := worst(what, actual, expected, finite_only=finite_only)) is not None:
            problems.append(excess.text())
    return problems


def worst(what: str, actual: Tensor, expected: Expected, *, finite_only: bool = False) -> Excess | None:
    """Return the element with the largest error relative to its bound; None if all are within their bounds.

    An expected NaN matches NaN, and an expected infinity matches the same infinity.
    """
    if not actual.numel():
        return None
    value, bound = _double(expected.value), expected.bound
    actual64 = _double(_cpu(actual))
    error = _abs(actual64 - value)
    same = _eq(actual64, value) | (_isnan(actual64) & _isnan(value))
    ratio = error / bound
    ratio = _where(_isfinite(ratio), ratio, torch.full_like(ratio, math.inf))
    ratio = _where(same, torch.zeros_like(ratio), ratio)
    if expected.value.is_floating_point():
        overflows = _abs(value) > torch.finfo(actual.dtype).max
        ratio = _where(overflows & ~_isfinite(actual64), torch.zeros_like(ratio), ratio)
        if finite_only:
            ratio = _where(_isfinite(value), ratio, torch.zeros_like(ratio))
    else:
        ratio = _where(_isnan(bound), torch.zeros_like(ratio), ratio)
    flat_index = int(_argmax(ratio))
    if not float(ratio.reshape(-1)[flat_index]) > 1.0:
        return None
    index, remainder = [], flat_index
    for size in reversed(actual.shape):
        index.append(remainder % size)
        remainder //= size
    element = [float(tensor.reshape(-1)[flat_index]) for tensor in (actual64, value, bound)]
    return Excess(what, tuple(reversed(index)), *element)
