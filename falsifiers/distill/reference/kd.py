"""The trainer's loss for the falsifiers of losses."""

import torch

from falsifiers.distill.kd.subject import Answer, Question
from falsifiers.distill.reference.loss import distillation_loss
from harness import Setting


class PlainKdLoss:
    """All logits at once, torch operations, and autograd: the loss with which the reference trains its student."""

    def __init__(self, setting: Setting) -> None: ...

    def __call__(self, question: Question) -> Answer:
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
