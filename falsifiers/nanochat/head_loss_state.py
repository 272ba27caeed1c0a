"""Checks that the loss of a head depends on its arguments alone and does not modify them."""

from typing import Any

import torch
from torch import Tensor

from falsifiers.nanochat.head_question import HeadQuestion
from falsifiers.nanochat.subject import HeadLoss
from harness import Trial
from harness.authoring.tensor_function import Draw
from harness.authoring.tensor_function.state_check import STATE, StateCheck

_IGNORED = -100


def state_check(trial: Trial[HeadLoss]) -> StateCheck:
    """The check of the trial's loss. Call it before CUDA is used."""
    subject = trial.subject

    def loss(hidden: Tensor, weight: Tensor, targets: Tensor, upstream: Tensor, **numbers: Any) -> tuple[Tensor, ...]:
        answer = subject(HeadQuestion(hidden, weight, targets, upstream=upstream, float32_sums=True, **numbers))
        return answer.loss, answer.grad_hidden, answer.grad_weight

    more: Any = {"dtypes": ("float32", "float64", "bfloat16"), "differentiable": False, "any_layout": True}
    return StateCheck(trial, loss, _formulas, _arguments, (*STATE, "many_rows"), **more)


def _arguments(draw: Draw) -> Any:
    """Hidden states [rows, width], weight [vocabulary, width], targets [rows], upstream, and the numbers.

    The upstream gradient is [rows] for the losses of rows, else a scalar.
    """
    rows, vocabulary, width = draw.size("rows"), draw.size("vocabulary"), draw.size("width")
    reduction = draw.choice("reduction", "mean", "sum", "none", refused=("average",))
    tensors = (
        draw.tensor(rows, width),
        draw.tensor(vocabulary, width, refused=("float16", "float64")),
        draw.index(rows, below=vocabulary, also=(_IGNORED,), refused=("int32",)),
        draw.upstream(*([rows] if reduction == "none" else [])),
    )
    return tensors, {
        "ignore_index": _IGNORED,
        "label_smoothing": draw.choice("label_smoothing", 0.0, 0.1, refused=(-0.1, 1.1)),
        "z_loss": draw.choice("z_loss", 0.0, 1e-2, refused=(-1e-2,)),
        "softcap": draw.choice("softcap", 0.0, 5.0, refused=(-5.0,)),
        "reduction": reduction,
    }


def _formulas(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    upstream: Tensor,
    *,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
    reduction: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradients by formulas without autograd, in the dtype of the inputs."""
    raw = hidden @ weight.T
    bent = torch.tanh(raw / softcap) if softcap else raw
    logits = softcap * bent if softcap else raw
    counts, classes = targets != ignore_index, logits.shape[-1]
    log_sums = logits.logsumexp(-1, keepdim=True)
    target_probabilities = torch.zeros_like(logits).scatter(-1, targets.clamp_min(0).unsqueeze(-1), 1.0)
    target_probabilities = target_probabilities * (1.0 - label_smoothing) + label_smoothing / classes
    losses = (target_probabilities * (log_sums - logits)).sum(-1) + z_loss * log_sums.squeeze(-1) ** 2
    slopes = (logits - log_sums).exp() * (1.0 + 2.0 * z_loss * log_sums) - target_probabilities
    slopes = slopes * (1.0 - bent**2) if softcap else slopes
    share = 1.0 / counts.sum().clamp_min(1).to(logits.dtype) if reduction == "mean" else torch.ones_like(upstream)
    slopes = torch.where(counts.unsqueeze(-1), slopes, 0.0) * (share * upstream).reshape(-1, 1)
    losses = torch.where(counts, losses, 0.0)
    return losses if reduction == "none" else losses.sum() * share, slopes @ weight, slopes.T @ hidden
