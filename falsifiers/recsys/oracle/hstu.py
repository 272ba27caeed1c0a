"""HSTU attention and its gradients in float64, one sequence and one head at a time, from the definition."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from falsifiers.recsys.subject import Question


@dataclass(frozen=True)
class Part:
    """A tensor of the expected answer.

    Attributes:
        value: float64, [rows, heads, width].
        noise: float64, of the same shape: the error if every term is rounded once, relative to the unit roundoff. The
            errors of terms are independent, so their squares are added. Subnormal numbers have fewer digits.
    """

    value: Tensor
    noise: Tensor


@dataclass(frozen=True)
class Truth:
    """The output, and the gradients of the sum of `grad_output * output`."""

    out: Part
    dq: Part
    dk: Part
    dv: Part


def mask(question: Question, item: int, length: int) -> Tensor:
    """Return which rows of a sequence attend to which keys, [length, length]."""
    ids, end = torch.arange(length, device=question.q.device), length
    contextuals = question.num_contextuals
    if contextuals is not None:
        ids, end = (ids - contextuals[item] + 1).clamp_min(0), length - int(contextuals[item]) + 1
    rows, keys = ids[:, None], ids[None, :]
    distance = rows - keys
    if not question.causal:
        distance = distance.abs()
    valid = torch.eye(length, dtype=torch.bool, device=ids.device) | (distance > 0)
    if question.num_targets is not None:
        targets = int(question.num_targets[item])
        groups = (ids - end + targets).clamp_min(-1).div(question.target_group_size, rounding_mode="floor")
        of_rows, of_keys = groups[:, None], groups[None, :]
        valid &= (of_rows == of_keys) | (of_rows < 0) | (of_keys < 0)
        end -= targets
    if question.max_attn_len:
        near = distance <= question.max_attn_len
        if question.min_full_attn_seq_len:
            near = near | (rows >= end - question.min_full_attn_seq_len)
        valid &= near
    if contextuals is not None:
        valid |= (rows == 0) & (keys < end)
    return valid


def truth(question: Question) -> Truth:
    """Evaluate the definition; the inputs' numbers are taken as exact."""
    q, k, v, grad_output = (
        tensor.detach().double() for tensor in (question.q, question.k, question.v, question.grad_output)
    )
    values = [torch.zeros_like(tensor) for tensor in (v, q, k, v)]
    noises = [torch.zeros_like(tensor) for tensor in (v, q, k, v)]
    alpha, scale, tiny = question.alpha, 1.0 / question.scaling_seqlen, torch.finfo(question.q.dtype).smallest_normal
    for item, start, end in _sequences(question):
        valid = mask(question, item, end - start).double()
        for head in range(q.shape[1]):
            my_q, my_k, my_v, grad_output_rows = (tensor[start:end, head] for tensor in (q, k, v, grad_output))
            scores = alpha * my_q @ my_k.T
            sigmoid = torch.sigmoid(scores)
            weights = valid * scores * sigmoid * scale
            slopes = valid * sigmoid * (1.0 + scores * (1.0 - sigmoid)) * scale
            grad_weights = grad_output_rows @ my_v.T
            grad_scores = grad_weights * slopes
            # A sigmoid in hardware is exact to a sixteenth of a rounding of bfloat16, whatever its size
            weight_noise = weights.abs() + valid * (scores.abs() * scale / 16.0 + tiny)
            score_noise = grad_scores.abs() + valid * ((1.0 + scores.abs()) * scale * grad_weights.abs() / 16.0 + tiny)
            sums = (
                (weights, weight_noise, my_v, 1.0), (grad_scores, score_noise, my_k, alpha),
                (grad_scores.T, score_noise.T, my_q, alpha), (weights.T, weight_noise.T, grad_output_rows, 1.0),
            )  # fmt: skip
            for value, noise, (left, left_noise, right, factor) in zip(values, noises, sums, strict=True):
                product = factor * left @ right
                value[start:end, head] = product
                noise[start:end, head] = (factor**2 * left_noise**2 @ right**2 + product**2).sqrt() + tiny
    return Truth(*(Part(value, noise) for value, noise in zip(values, noises, strict=True)))


def in_low_precision(question: Question) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return output and gradients with every step in the inputs' own dtype, by autograd, as the source's tests do."""
    q, k, v = (tensor.detach().requires_grad_() for tensor in (question.q, question.k, question.v))
    parts = []
    for item, start, end in _sequences(question):
        scores = torch.einsum("rhd,khd->hrk", q[start:end], k[start:end]) * question.alpha
        weights = torch.nn.functional.silu(scores) / question.scaling_seqlen * mask(question, item, end - start)
        parts.append(torch.einsum("hrk,khd->rhd", weights, v[start:end]))
    with torch.enable_grad():
        out = torch.cat(parts)
    return (out.detach(), *torch.autograd.grad(out, (q, k, v), question.grad_output))


def product_along(question: Question, toward: tuple[Tensor, Tensor, Tensor], step: float) -> float:
    """Return the derivative of the sum of `grad_output * output` along q, k and v, by a central difference.

    Its error has the order of the step's fourth power: two differences are extrapolated to a step of zero.
    """

    def value(by: float) -> float:
        q, k, v = (
            tensor.double() + by * way for tensor, way in zip((question.q, question.k, question.v), toward, strict=True)
        )  # fmt: skip
        total = 0.0
        for item, start, end in _sequences(question):
            valid = mask(question, item, end - start).double()
            scores = question.alpha * torch.einsum("rhd,khd->hrk", q[start:end], k[start:end])
            out = torch.einsum("hrk,khd->rhd", torch.nn.functional.silu(scores) * valid, v[start:end])
            total += float((question.grad_output[start:end].double() * out).sum()) / question.scaling_seqlen
        return total

    near, far = ((value(length) - value(-length)) / (2.0 * length) for length in (step, 2.0 * step))
    return (4.0 * near - far) / 3.0


def _sequences(question: Question) -> list[tuple[int, int, int]]:
    """Return number, start and end of each sequence with rows; of the first, if none has rows."""
    sequences = ((item, start, end) for item, (start, end) in enumerate(pairwise(question.offsets.tolist())))
    return [sequence for sequence in sequences if sequence[1] < sequence[2]] or [(0, 0, 0)]
