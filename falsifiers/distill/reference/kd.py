"""The trainer's loss as the falsifiers of losses ask for it."""

from __future__ import annotations

import torch

from falsifiers.distill.kd.subject import Answer, Question
from falsifiers.distill.reference.loss import distillation_loss
from harness import Setting

__all__ = ["PlainKdLoss"]


class PlainKdLoss:
    """All logits at once, torch's own operations, and autograd: the loss on which the reference trains its student."""

    def __init__(self, setting: Setting) -> None:
        """Nothing depends on the setting; inputs bring their device with them."""

    def __call__(self, question: Question) -> Answer:
        """The loss and its gradients."""
        student = question.student.detach().requires_grad_()
        head = question.student_head.detach().requires_grad_()
        with torch.enable_grad():
            logits = student @ head.T
            teacher_logits = question.teacher @ question.teacher_head.T
            loss = distillation_loss(
                logits, teacher_logits, question.labels, alpha=question.alpha, temperature=question.temperature
            )
        gradients = torch.autograd.grad(loss, (student, head), torch.full_like(loss, question.upstream))
        return Answer(loss.detach(), *gradients)
