"""Liger-Kernel's fused distillation loss (BSD-2-Clause), unchanged."""

import torch

from falsifiers.distill.kd.subject import IGNORED, Answer, Question
from harness import Setting


class LigerLoss:
    """`LigerFusedLinearJSDLoss`, with two rows per chunk, so that there are several chunks.

    It is not compiled, because every shape and temperature of a search would be compiled anew.
    """

    def __init__(self, setting: Setting) -> None: ...

    def __call__(self, question: Question, *, hard: float, soft: float, beta: float) -> Answer:
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
