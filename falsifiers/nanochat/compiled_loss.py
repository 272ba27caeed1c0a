"""F-GB10-LIGER-LOSS-001: torch.compile does not change the loss of Liger's fused cross-entropy, nor its gradients."""

import torch
from torch import Tensor

from falsifiers.nanochat.oracle.head_loss import truth
from falsifiers.nanochat.reference.model import IGNORED
from falsifiers.nanochat.subject import MaybeCompiled, Question
from harness import Trial

_USED = 64
"""Tensors of one number per row, more than a loss allocates."""


def falsify(trial: Trial[MaybeCompiled]) -> None:
    """Compare eager and compiled results with float64, by share of ignored rows; then with captured scalars."""
    names = ("eager", "compiled", "again", "gradient")
    errors: dict[str, list[float]] = {name: [] for name in names}
    for captured in (False, True):
        for number, ignored in enumerate(trial.parameters["ignored"]):
            inputs = _question(trial, number, ignored)
            right = truth(inputs)
            torch._dynamo.reset()
            with trial.subject_fault(), torch._dynamo.config.patch(capture_scalar_outputs=captured):
                eager, _ = _answer(trial.subject.eager(), inputs)
                compiled = trial.subject.compiled()
                first, gradients = _answer(compiled, inputs)
                second, _ = _answer(compiled, inputs)
            size = max(1.0, float(right.loss))
            for name, loss in (("eager", eager), ("compiled", first), ("again", second)):
                errors[name].append(abs(loss - float(right.loss)) / size)
            grad_hidden, grad_weight = gradients
            pairs = ((grad_hidden, right.grad_hidden), (grad_weight, right.grad_weight))
            errors["gradient"].append(max(_relative(error, true) for error, true in pairs))
            trial.measure(**{f"{name}_errors": errors[name] for name in names})
    trial.resolve(device=torch.device(trial.device).type)


def _question(trial: Trial[MaybeCompiled], number: int, ignored: float) -> Question:
    """Draw float32 inputs; the first rows are ignored."""
    rows, width, vocabulary = (trial.parameters[name] for name in ("rows", "width", "vocabulary"))
    generator = torch.Generator().manual_seed(10 * trial.seed + number)
    hidden = torch.randn(rows, width, generator=generator)
    weight = torch.randn(vocabulary, width, generator=generator) / width**0.5  # logits vary by about 1
    targets = torch.randint(vocabulary, (rows,), generator=generator)
    targets[: round(ignored * rows)] = IGNORED
    hidden, weight, targets, tensor = (
        tensor.to(trial.device) for tensor in (hidden, weight, targets, torch.tensor(1.0))
    )
    return Question(
        hidden, weight, targets, IGNORED, 0.0, 0.0, 0.0, "sum" if ignored == 1.0 else "mean", True, upstream=tensor
    )


def _answer(loss: object, question: Question) -> tuple[float, tuple[Tensor, Tensor]]:
    """Return the loss and its gradients. The memory that the loss will allocate is filled with other numbers first."""
    used = [torch.full(question.targets.shape, 7.0, device=question.targets.device) for _ in range(_USED)]
    del used
    inputs = question.hidden.detach().clone().requires_grad_(), question.weight.detach().clone().requires_grad_()
    value: Tensor = loss(*inputs, question.targets)  # type: ignore[operator]
    grad_hidden, grad_weight = torch.autograd.grad(value, inputs)
    return float(value.detach()), (grad_hidden, grad_weight)


def _relative(actual: Tensor, true: Tensor) -> float:
    return float((actual.double() - true).abs().max() / true.abs().max().clamp_min(1e-30))
