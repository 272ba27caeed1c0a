"""A Triton kernel for a chunk's logits: two sweeps over them instead of a dozen.

The first sweep computes, for every row, the running maximum and sum of exponentials (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018) of the student's logits at temperatures 1 and T and of the teacher's at T.
The second sweep overwrites the student's logits with the gradient and sums the divergence. A row that does not count
takes both sweeps too, with a weight of 0: a NaN in it reaches the gradient, as in torch's operations.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from falsifiers.distill.reference.loss import IGNORED

_BLOCK = 4096


def fused_rows(
    student_logits: Tensor, teacher_logits: Tensor, labels: Tensor, tokens: Tensor, alpha: float, temperature: float
) -> Tensor:
    """The sum of the rows' losses; `logits` becomes the gradient of the mean loss over `tokens`.

    Args:
        logits, towards: student's and teacher's [rows, vocabulary], float32, contiguous, on one GPU.
        labels: [rows] int64; one outside the vocabulary gives a loss of NaN.
        tokens: how many of all rows count, an int64 scalar on the GPU.
    """
    rows, vocabulary = student_logits.shape
    losses = torch.empty(rows, device=student_logits.device, dtype=torch.float32)
    block = min(_BLOCK, triton.next_power_of_2(vocabulary))
    with torch.cuda.device_of(student_logits):
        _rows[(rows,)](
            student_logits, teacher_logits, labels.contiguous(), tokens, losses, vocabulary, alpha, 1.0 / temperature,
            (1.0 - alpha) * temperature**2, (1.0 - alpha) * temperature,
            ignored=IGNORED, block=block, num_warps=16 if block >= 4096 else 8,
        )  # fmt: skip
    return losses.sum()


@triton.jit
def _merged(maximum, total, values):  # type: ignore[no-untyped-def]
    """A running maximum and sum of exponentials, with one more block of values."""
    larger = tl.maximum(maximum, tl.max(values, axis=0))
    return larger, total * tl.exp(maximum - larger) + tl.sum(tl.exp(values - larger), axis=0)


@triton.jit
def _rows(  # type: ignore[no-untyped-def]
    student_logits, teacher_logits, labels, tokens, losses, vocabulary, alpha, inverse, value_weight, gradient_weight,
    ignored: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    student = student_logits + row * vocabulary
    teacher = teacher_logits + row * vocabulary
    label = tl.load(labels + row)
    counts = label != ignored

    inside_vocabulary = (label >= 0) & (label < vocabulary)
    at_label = tl.load(student + label, mask=inside_vocabulary, other=float("nan"))
    hard_maximum, hard_sum = float("-inf"), 0.0
    soft_maximum, soft_sum = float("-inf"), 0.0
    true_maximum, true_sum = float("-inf"), 0.0
    for start in range(0, vocabulary, block):
        columns = start + tl.arange(0, block)
        inside = columns < vocabulary
        student_tile = tl.load(student + columns, mask=inside, other=float("-inf"))
        teacher_tile = tl.load(teacher + columns, mask=inside, other=float("-inf"))
        hard_maximum, hard_sum = _merged(hard_maximum, hard_sum, student_tile)
        soft_maximum, soft_sum = _merged(soft_maximum, soft_sum, student_tile * inverse)
        true_maximum, true_sum = _merged(true_maximum, true_sum, teacher_tile * inverse)
    hard_log = hard_maximum + tl.log(hard_sum)
    soft_log = soft_maximum + tl.log(soft_sum)
    true_log = true_maximum + tl.log(true_sum)

    share = tl.where(counts, 1.0 / tl.load(tokens).to(tl.float32), 0.0)
    divergence = 0.0
    for start in range(0, vocabulary, block):
        columns = start + tl.arange(0, block)
        inside = columns < vocabulary
        student_tile = tl.load(student + columns, mask=inside, other=0.0)
        teacher_tile = tl.load(teacher + columns, mask=inside, other=0.0)
        log_q = student_tile * inverse - soft_log
        log_p = teacher_tile * inverse - true_log
        p = tl.exp(log_p)
        divergence += tl.sum(tl.where(inside, p * (log_p - log_q), 0.0), axis=0)
        gradient = alpha * tl.exp(student_tile - hard_log) + gradient_weight * (tl.exp(log_q) - p)
        gradient = tl.where(columns == label, gradient - alpha, gradient)
        tl.store(student + columns, gradient * share, mask=inside)
    tl.store(losses + row, tl.where(counts, alpha * (hard_log - at_label) + value_weight * divergence, 0.0))
