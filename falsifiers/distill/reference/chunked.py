"""The distillation loss without all logits: in chunks of tokens, with gradients computed in the forward pass.

For 4,096 tokens and a vocabulary of 151,936, logits take 2.3 GiB in float32, and the plain loss makes half a dozen such
tensors. Here the logits of a chunk are computed, replaced in place by their gradient, used for the gradients of hidden
states and head, and discarded. What remains is as large as the hidden states and the head.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from falsifiers.distill.kd.subject import Answer, Question
from falsifiers.distill.reference.loss import IGNORED
from harness import Setting

_CHUNK_BYTES = 320 << 20
"""The most bytes of one chunk's logits: its products keep a GPU busy, and it is small relative to the models."""

_TILE_ROWS = 128
"""Rows of a tile in which GPUs multiply matrices: a product with 552 rows takes as long as one with 640."""


def chunked_distillation_loss(
    student: Tensor,
    student_head: Tensor,
    teacher: Tensor,
    teacher_head: Tensor,
    labels: Tensor,
    *,
    alpha: float,
    temperature: float,
    chunk: int | None = None,
) -> Tensor:
    """`distillation_loss` of the logits `student @ student_head.T` and `teacher @ teacher_head.T`, in chunks.

    The gradient reaches `student` and `student_head`; the teacher's inputs are constants. Only one backward pass is
    possible, because it returns the gradients without a copy.

    Args:
        student, teacher: hidden states [..., width]; the widths may differ.
        student_head, teacher_head: [vocabulary, width], with one vocabulary.
        labels: token ids [...]; IGNORED ones do not count.
        chunk: tokens per chunk; by default the chunks are equal, with logits of at most 320 MiB.

    Raises:
        ValueError: the shapes do not fit together, or the vocabularies differ.
    """
    if student.shape[:-1] != labels.shape or teacher.shape[:-1] != labels.shape:
        raise ValueError(
            f"labels {tuple(labels.shape)} do not belong to hidden states of {tuple(student.shape)} and "
            f"{tuple(teacher.shape)}"
        )
    if student_head.shape[0] != teacher_head.shape[0]:
        raise ValueError(
            f"the vocabularies differ: {student_head.shape[0]} and {teacher_head.shape[0]} tokens; cut or pad one first"
        )
    if chunk is None:
        chunk = rows_a_chunk(labels.numel(), student_head.shape[0])
    loss: Tensor = _Chunked.apply(
        student.flatten(0, -2),
        student_head,
        teacher.flatten(0, -2),
        teacher_head,
        labels.flatten(),
        float(alpha),
        float(temperature),
        chunk,
    )
    return loss


def rows_a_chunk(rows: int, vocabulary: int) -> int:
    """The rows of equal chunks, in whole tiles if those fit into the most bytes of a chunk."""
    largest = max(1, _CHUNK_BYTES // (4 * vocabulary))
    equal = math.ceil(rows / max(1, math.ceil(rows / largest)))
    tiles = math.ceil(equal / _TILE_ROWS) * _TILE_ROWS
    return max(1, tiles if tiles <= largest else equal)


class _Chunked(torch.autograd.Function):
    """Computes the gradients with the logits; the backward pass multiplies them by the gradient of the loss."""

    @staticmethod
    def forward(
        ctx: Any,
        student: Tensor,
        student_head: Tensor,
        teacher: Tensor,
        teacher_head: Tensor,
        labels: Tensor,
        alpha: float,
        temperature: float,
        chunk: int,
    ) -> Tensor:
        wanted = ctx.needs_input_grad[:2]
        precise = torch.promote_types(student.dtype, torch.float32)
        grad_student = torch.empty_like(student) if wanted[0] else None
        # In half precision the sum over chunks is kept in float32: small contributions would be lost beside large ones.
        grad_head = torch.zeros_like(student_head, dtype=precise) if wanted[1] else None
        total = student.new_zeros((), dtype=precise)
        tokens = (labels != IGNORED).sum().clamp_min(1)
        for start in range(0, len(labels), chunk):
            rows = slice(start, start + chunk)
            student_logits = (student[rows] @ student_head.T).to(precise)
            teacher_logits = (teacher[rows] @ teacher_head.T).to(precise)
            total += _loss_and_gradient(student_logits, teacher_logits, labels[rows], tokens, alpha, temperature)
            del teacher_logits
            gradient = student_logits.to(student.dtype)
            if grad_student is not None:
                torch.mm(gradient, student_head, out=grad_student[rows])
            if grad_head is not None:
                _add_product(grad_head, gradient.T, student[rows])
            del student_logits, gradient
        ctx.gradients = grad_student, grad_head
        ctx.dtypes = student.dtype, student_head.dtype
        return total / tokens

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the chunked loss gave its gradients away; compute it again for another backward pass")
        given, ctx.gradients = ctx.gradients, None
        # On a GPU, a tensor in half precision would round the factor.
        gradients = [
            None if gradient is None else gradient.to(grad_output.dtype).mul_(grad_output).to(dtype)
            for gradient, dtype in zip(given, ctx.dtypes, strict=True)
        ]
        return (*gradients, None, None, None, None, None, None)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """`total += left @ right`, in one operation if the dtypes allow it."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def _loss_and_gradient(
    student_logits: Tensor, teacher_logits: Tensor, labels: Tensor, tokens: Tensor, alpha: float, temperature: float
) -> Tensor:
    """The sum of the chunk's losses. `logits` becomes the gradient of the mean loss; `towards` is overwritten.

    Args:
        logits, towards: student's and teacher's [rows, vocabulary], float32 or float64.
        labels: [rows].
        tokens: how many of all rows count, a scalar.
    """
    if (
        student_logits.is_cuda
        and student_logits.dtype is torch.float32
        and student_logits.is_contiguous()
        and teacher_logits.is_contiguous()
    ):
        from falsifiers.distill.reference.chunked_triton import fused_rows

        return fused_rows(student_logits, teacher_logits, labels, tokens, alpha, temperature)
    return eager_rows(student_logits, teacher_logits, labels, tokens, alpha, temperature)


def eager_rows(
    student_logits: Tensor, teacher_logits: Tensor, labels: Tensor, tokens: Tensor, alpha: float, temperature: float
) -> Tensor:
    """`_loss_and_gradient` in torch operations, for any device; three tensors of a chunk's size at the peak."""
    counts = labels != IGNORED
    targets = torch.where(counts, labels, 0).unsqueeze(-1)
    weight = (1.0 - alpha) * temperature**2
    # The cross entropy uses the logits as they are, the divergence uses them divided by the temperature.
    log_sums = student_logits.logsumexp(dim=-1, keepdim=True)
    surprises = (log_sums - student_logits.gather(-1, targets)).squeeze(-1)
    hard = (student_logits - log_sums).exp_().mul_(alpha)

    student_logits.div_(temperature)
    student_logits.sub_(student_logits.logsumexp(dim=-1, keepdim=True))
    teacher_logits.div_(temperature)
    teacher_logits.sub_(teacher_logits.logsumexp(dim=-1, keepdim=True))
    p = teacher_logits.exp()
    divergences = teacher_logits.sub_(student_logits).mul_(p).sum(dim=-1)

    student_logits.exp_().sub_(p).mul_(weight / temperature).add_(hard)
    student_logits.scatter_add_(-1, targets, torch.full_like(targets, -alpha, dtype=student_logits.dtype))
    student_logits.mul_((counts.to(student_logits.dtype) / tokens).unsqueeze(-1))
    return torch.where(counts, alpha * surprises + weight * divergences, 0.0).sum()


class ChunkedKdLoss:
    """The chunked loss for the falsifiers of losses, with small chunks, so that there are several."""

    def __init__(self, setting: Setting) -> None: ...

    def __call__(self, question: Question) -> Answer:
        student = question.student.detach().requires_grad_()
        head = question.student_head.detach().requires_grad_()
        with torch.enable_grad():
            loss = chunked_distillation_loss(
                student,
                head,
                question.teacher,
                question.teacher_head,
                question.labels,
                alpha=question.alpha,
                temperature=question.temperature,
                chunk=3,
            )
        gradients = torch.autograd.grad(loss, (student, head), torch.full_like(loss, question.upstream))
        return Answer(loss.detach(), *gradients)
