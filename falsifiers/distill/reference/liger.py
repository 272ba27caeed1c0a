"""Liger-Kernel's fused distillation loss (BSD-2-Clause), as it comes."""

from __future__ import annotations

import torch

from falsifiers.distill.kd.subject import IGNORED, Answer, Question
from harness import Setting

__all__ = ["LigerLoss"]


class LigerLoss:
    """`LigerFusedLinearJSDLoss`, with two rows a chunk so that there are several.

    It is not compiled: every shape and temperature of a search would be compiled anew.
    """

    def __init__(self, setting: Setting) -> None:
        """Nothing depends on the setting; inputs bring their device with them."""

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
        """The loss and its gradients."""
        from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss

        student = question.student.detach().requires_grad_()
        head = question.student_head.detach().requires_grad_()
        loss = LigerFusedLinearJSDLoss(
            weight_hard_loss=hard,
            weight_soft_loss=soft,
            beta=beta,
            ignore_index=IGNORED,
            temperature=question.temperature,
            compiled=False,
            chunk_size=2,
        )(student, head, question.teacher, question.teacher_head, question.labels)
        gradients = torch.autograd.grad(loss, (student, head), torch.full_like(loss, question.upstream))
        return Answer(loss.detach(), *gradients)
