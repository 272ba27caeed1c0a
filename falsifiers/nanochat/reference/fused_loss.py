"""The fused loss as the falsifiers ask for it."""

from __future__ import annotations

import torch

from falsifiers.nanochat.reference.linear_cross_entropy import linear_cross_entropy
from falsifiers.nanochat.subject import Answer, Question
from harness import Setting

__all__ = ["FusedLoss", "chunk_rows"]


def chunk_rows(rows: int) -> int:
    """Return how many rows a chunk has: of 256 rows or more, 32 chunks, as many as Liger makes of 65,536 rows."""
    return max(8, -(-rows // 32))


class FusedLoss:
    """Our loss, in up to 32 chunks."""

    def __init__(self, setting: Setting) -> None:
        """Inputs bring their device with them; nothing depends on the setting."""

    def __call__(self, question: Question) -> Answer:
        """Return the loss and its gradients. Options that are off are not given, as by other callers."""
        options = {name: getattr(question, name) for name in ("label_smoothing", "z_loss", "softcap")}
        hidden = question.hidden.detach().requires_grad_()
        weight = question.weight.detach().requires_grad_()
        with torch.enable_grad():
            loss = linear_cross_entropy(
                hidden,
                weight,
                question.targets,
                ignore_index=question.ignore_index,
                reduction=question.reduction,
                accumulate_float32=question.float32_sums,
                chunk_rows=chunk_rows(len(hidden)),
                **{name: value for name, value in options.items() if value},
            )
        gradients = torch.autograd.grad(loss, (hidden, weight), question.upstream.to(loss.dtype))
        return Answer(loss.detach(), *gradients)
