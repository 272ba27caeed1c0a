"""F-PD-KL-DIR-001: the reconstruction loss is KL(clean || masked), in float32, a mean over rows and positions."""

import torch
from torch import Tensor

from falsifiers.param_decomp.oracle import terms
from falsifiers.param_decomp.subject import Decomposition
from falsifiers.param_decomp.watching import drawn_steps, measure_steps
from harness import Trial
from harness.authoring.shadow_step import relative_difference
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import VALUES_AND_STATE, StateCheck

_SHAPE = (2, 3, 11)
_SCALES = (0.5, 4.0, 30.0)
"""For small logits the divergence is almost symmetric; large ones overflow a softmax without a maximum."""


def falsify(trial: Trial[Decomposition]) -> None:
    """Ask for the loss on given logits in each precision, and train on it alone."""
    state = StateCheck(trial, trial.subject.divergence, terms.divergence, _logits, VALUES_AND_STATE)
    generator = torch.Generator().manual_seed(trial.seed)
    errors: dict[str, list[float]] = {"value_errors": [], "gradient_errors": [], "half_gradient_errors": []}
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for scale in _SCALES:
            masked, clean = (
                (scale * torch.randn(_SHAPE, generator=generator, dtype=torch.float64)).to(trial.device, dtype)
                for _ in range(2)
            )
            value, gradient = _asked(trial, masked, clean)
            leaf = masked.cpu().double().requires_grad_()
            right = terms.divergence(leaf, clean.cpu().double())
            right.backward()
            assert leaf.grad is not None
            errors["value_errors"].append(abs(float(value) - float(right.detach())) / max(1.0, float(right.detach())))
            name = "half_gradient_errors" if dtype.itemsize == 2 else "gradient_errors"
            errors[name].append(relative_difference(gradient.cpu(), leaf.grad, leaf.grad))
    trial.measure(**errors, violations=state.violations())
    measure_steps(trial, trial.subject, drawn_steps(trial))


def _logits(draw: Draw) -> tuple[Tensor, Tensor]:
    """Masked and clean logits [rows, sequence, vocabulary]."""
    shape = draw.size("rows"), draw.size("sequence"), draw.size("vocabulary", least=2)
    return draw.tensor(*shape), draw.tensor(*shape)


def _asked(trial: Trial[Decomposition], masked: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
    """The subject's loss, and its gradient with respect to the masked logits."""
    with trial.subject_fault():
        leaf = masked.clone().requires_grad_()
        value = trial.subject.divergence(leaf, clean.clone())
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), gradient
