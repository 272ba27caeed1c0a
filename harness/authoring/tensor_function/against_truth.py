"""The worst element of an answer against its bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.authoring.tensor_function.call import Answer
from harness.authoring.tensor_function.tolerance import Expected, Truth

__all__ = ["Excess", "differences", "worst"]

# Read before any subject is imported, which may replace them.
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
    """The element that is farthest beyond its bound, in multiples of it."""

    what: str
    place: tuple[int, ...]
    got: float
    due: float
    bound: float

    @property
    def times(self) -> float:
        """The error in multiples of the bound; infinite where it has no size."""
        error = abs(self.got - self.due)
        return error / self.bound if math.isfinite(error) and self.bound > 0 else math.inf

    def text(self) -> str:
        """In words."""
        where = f" at {list(self.place)}" if self.place else ""
        return f"{self.what}{where} is {self.got:.9g}, not {self.due:.9g} within {self.bound:.2g}"


def differences(answer: Answer, truth: Truth, wanted: tuple[int, ...], *, finite_only: bool = False) -> list[str]:
    """What of an answer is not right, in words; empty if all is.

    Args:
        wanted: the places of the tensors whose gradients these are.
        finite_only: whether an element is compared only where the truth is finite.
    """
    if answer.raised:
        return [f"it raised {answer.raised}"]
    problems: list[str] = []
    if len(answer.outputs) != len(truth.outputs):
        return [f"it returned {len(answer.outputs)} tensors, not {len(truth.outputs)}"]
    both = enumerate(zip(answer.outputs, truth.outputs, strict=True))
    pairs = [(f"output {place}", output, due) for place, (output, due) in both]
    if truth.gradients and answer.detached:
        if any(bool(gradient.value.any()) for gradient in truth.gradients):
            problems.append("no output has a gradient, and the reference's has")
    else:
        gradients = zip(wanted, answer.gradients, truth.gradients, strict=False)
        pairs += [(f"the gradient of tensor {place}", gradient, due) for place, gradient, due in gradients]
    for what, got, due in pairs:
        if tuple(got.shape) != tuple(due.value.shape):
            problems.append(f"{what} has the shape {tuple(got.shape)}, not {tuple(due.value.shape)}")
        elif got.is_floating_point() != due.value.is_floating_point():
            problems.append(f"{what} is {got.dtype}, and the reference's {due.value.dtype}")
        elif (excess := worst(what, got, due, finite_only=finite_only)) is not None:
            problems.append(excess.text())
    return problems


def worst(what: str, got: Tensor, due: Expected, *, finite_only: bool = False) -> Excess | None:
    """The element farthest beyond its bound; None if none is beyond.

    NaN is right where it is due, and an infinity where the same one is due.
    """
    if not got.numel():
        return None
    value, bound = _double(due.value), due.bound
    got64 = _double(_cpu(got))
    error = _abs(got64 - value)
    same = _eq(got64, value) | (_isnan(got64) & _isnan(value))
    ratio = error / bound
    ratio = _where(_isfinite(ratio), ratio, torch.full_like(ratio, math.inf))
    ratio = _where(same, torch.zeros_like(ratio), ratio)
    if due.value.is_floating_point():
        overflows = _abs(value) > torch.finfo(got.dtype).max
        ratio = _where(overflows & ~_isfinite(got64), torch.zeros_like(ratio), ratio)
        if finite_only:
            ratio = _where(_isfinite(value), ratio, torch.zeros_like(ratio))
    else:
        ratio = _where(_isnan(bound), torch.zeros_like(ratio), ratio)
    at = int(_argmax(ratio))
    if not float(ratio.reshape(-1)[at]) > 1.0:
        return None
    place, left = [], at
    for size in reversed(got.shape):
        place.append(left % size)
        left //= size
    flat = [float(tensor.reshape(-1)[at]) for tensor in (got64, value, bound)]
    return Excess(what, tuple(reversed(place)), *flat)
