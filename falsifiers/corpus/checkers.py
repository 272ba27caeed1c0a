"""Three other checkers, to be asked about the same cases: see `harness.tools.corpus.checker`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from falsifiers.corpus.judged import written
from harness.authoring.tensor_function.drawing import Case, Draw, Drawn, drawn
from harness.contract.entry_point import resolve
from harness.tools.corpus.checker import Form, NotInScope

__all__ = ["assert_close", "kernelbench", "loss_goes_down"]

_STEPS = 20
_SIZE = 64
"""The size of each dimension of arguments, as a benchmark fixes it: large enough for every function of the corpus."""


def _arguments(form: Form, seed: int) -> Drawn:
    """Float32 arguments of a function, each dimension of a fixed size."""
    example: Callable[[Draw], Any] = resolve(form.parameters["example"])
    case = Case(seed=seed)
    for name in drawn(example, case).sizes:
        case = case.with_size(name, _SIZE)
    return drawn(example, case)


def _function(form: Form) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function and its reference."""
    if form.surface != "function":
        raise NotInScope("it compares a function of tensors with a reference")
    return form.make(), resolve(form.parameters["against"])


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [one for one in value if isinstance(one, Tensor)]


def loss_goes_down(form: Form) -> None:
    """The smoke test of many suites: train a few steps; the loss is finite and has fallen.

    Of a function, whose output is a scalar: descend along its gradient. A suite of tests has to be green.
    """
    if form.surface == "trainer":
        losses: list[float] = []
        form.make().distill(on_step=lambda step, loss, **_: losses.append(loss))
        assert all(map(torch.isfinite, torch.tensor(losses))), "a loss is not finite"
        assert losses[-1] < losses[0], "the loss has not fallen"
    elif form.surface == "function":
        _descend(form)
    elif form.surface == "suite":
        root = written(form.make(), form.workspace / "suite")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(root)],
            cwd=root,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, "the suite is not green"
    else:
        raise NotInScope("no loss")


def _descend(form: Form) -> None:
    function, _ = _function(form)
    found = _arguments(form, form.seed)
    if not form.parameters.get("differentiable", True):
        raise NotInScope("no loss: the function has no gradient")
    args = [one.requires_grad_() if isinstance(one, Tensor) and one.is_floating_point() else one for one in found.args]
    if not isinstance(function(*args, **found.kwargs), Tensor) or function(*args, **found.kwargs).dim():
        raise NotInScope("no loss: the output is no scalar")
    trained = [one for one in args if isinstance(one, Tensor) and one.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    losses = []
    for _ in range(_STEPS):
        optimizer.zero_grad()
        loss = function(*args, **found.kwargs)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(one == one for one in losses), "a loss is NaN"
    assert any(later < earlier for earlier, later in pairwise(losses)), "the loss never falls"
    assert losses[-1] < losses[0], "the loss has not fallen"


def assert_close(form: Form) -> None:
    """torch.testing.assert_close with its default tolerances: outputs and gradients on one drawn example."""
    function, reference = _function(form)
    answers = []
    for called in (reference, function):
        found = _arguments(form, form.seed)
        answers.append([*_with_gradients(called, found, form.parameters.get("differentiable", True))])
    torch.testing.assert_close(answers[1], answers[0])


def _with_gradients(called: Callable[..., Any], found: Drawn, differentiable: bool) -> Iterator[Tensor]:
    """The outputs; then the gradients of their sum, weighted differently for each element."""
    values = [*found.args, *found.kwargs.values()]
    inputs = [one for one in values if isinstance(one, Tensor) and one.is_floating_point()]
    for one in inputs:
        one.requires_grad_(differentiable)
    outputs = _tensors(called(*found.args, **found.kwargs))
    yield from (one.detach() for one in outputs)
    scalars = [
        (one * torch.linspace(0.5, 1.5, max(1, one.numel())).view(one.shape).to(one)).sum()
        for one in outputs
        if one.requires_grad
    ]
    if differentiable and scalars:
        yield from torch.autograd.grad(torch.stack(scalars).sum(), inputs, materialize_grads=True)


def kernelbench(form: Form) -> None:
    """KernelBench's check, from its repository: random inputs of one shape, five times, with an absolute tolerance.

    `src/kernelbench/eval.py` seeds each trial, and runs the reference and the kernel on equal inputs without gradients.
    Outputs of float32 agree within 1e-4 (`get_tolerance_for_precision`).
    """
    function, reference = _function(form)
    with torch.no_grad():
        for trial in range(5):
            found = _arguments(form, form.seed * 5 + trial)
            right = reference(*found.args, **found.kwargs)
            answer = function(*found.args, **found.kwargs)
            for one, other in zip(_tensors(answer), _tensors(right), strict=True):
                assert one.shape == other.shape, "shapes differ"
                assert torch.allclose(one, other, atol=1e-4, rtol=1e-4), "values differ"
