"""Losses, gradients and attentions that were wrong, as functions of tensors that are right with `mended`."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor

from falsifiers.corpus import right_losses as right
from falsifiers.corpus.right_losses import CAP, IGNORED
from falsifiers.distill.reference.trainer import Distillation

__all__ = [
    "DropoutOffForever", "accumulated_means_added", "cap_after_bias", "cap_multiplied", "cap_not_applied",
    "causal_mask_dropped", "directions_swapped", "divided_twice", "dropout_in_evaluation", "end_masked_as_padding",
    "labels_shifted_twice", "mask_inverted", "mask_top_left", "mean_of_means", "normalised_by_sentences",
    "packed_documents_mixed", "teacher_against_itself",
]  # fmt: skip

Loss = Callable[..., Tensor]
_MICRO = 2
"""Rows of a micro-batch."""


def _of_micro_batches(logits: Tensor, labels: Tensor) -> list[Tensor]:
    parts = zip(torch.split(logits, _MICRO), torch.split(labels, _MICRO), strict=True)
    return [right.token_loss(*part) for part in parts]


def mean_of_means(mended: bool) -> Loss:
    """Each micro-batch is averaged over its own tokens, then the means are averaged."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return right.token_loss(logits, labels) if mended else torch.stack(_of_micro_batches(logits, labels)).mean()

    return loss


def accumulated_means_added(mended: bool) -> Loss:
    """The model ignores the tokens of the whole batch, and the trainer no longer divides by the micro-batches."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return right.token_loss(logits, labels) if mended else torch.stack(_of_micro_batches(logits, labels)).sum()

    return loss


def labels_shifted_twice(mended: bool) -> Loss:
    """The model shifts logits and labels, flattens them, and the loss function shifts the labels again."""

    def loss(logits: Tensor, tokens: Tensor) -> Tensor:
        flat, labels = logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        if not mended:
            labels = F.pad(labels, (0, 1), value=IGNORED)[1:]
        return F.cross_entropy(flat, labels, ignore_index=IGNORED)

    return loss


def end_masked_as_padding(mended: bool) -> Loss:
    """Padding has the token of the end, and every label with that token is ignored."""

    def loss(logits: Tensor, labels: Tensor, real: Tensor) -> Tensor:
        counts = real if mended else labels != 0
        losses = F.cross_entropy(logits, labels, reduction="none")
        return (losses * counts).sum() / counts.sum().clamp_min(1)

    return loss


def normalised_by_sentences(mended: bool) -> Loss:
    """The sum over tokens is divided by the number of sentences, although tokens were asked for."""

    def loss(logits: Tensor, tokens: Tensor) -> Tensor:
        mean = right.next_token_loss(logits, tokens)
        return mean if mended else mean * (tokens.shape[1] - 1)

    return loss


def directions_swapped(mended: bool) -> Loss:
    """The arguments of kl_div are in the order of the formula, where torch has the target second."""

    def loss(student: Tensor, teacher: Tensor, alpha: float) -> Tensor:
        return right.divergence(student, teacher, alpha if mended else 1.0 - alpha)

    return loss


def divided_twice(mended: bool) -> Loss:
    """The divergence is divided by the number of tokens where it is made, and where it is added up."""

    def loss(student: Tensor, teacher: Tensor) -> Tensor:
        mean = right.forward_kl(student, teacher)
        return mean if mended else mean / len(student)

    return loss


def teacher_against_itself(mended: bool) -> Loss:
    """After a clean-up, the student's logits are those of the teacher: the divergence is 0, and so is its gradient."""

    def loss(student: Tensor, teacher: Tensor) -> Tensor:
        return right.forward_kl(student if mended else teacher, teacher)

    return loss


def cap_multiplied(mended: bool) -> Loss:
    """Logits are multiplied by the hyperbolic tangent, and not the cap."""

    def cap(logits: Tensor) -> Tensor:
        return (CAP if mended else logits) * torch.tanh(logits / CAP)

    return cap


def cap_not_applied(mended: bool) -> Loss:
    """The cap is accepted, and handed to a function that ignores it."""

    def cap(logits: Tensor) -> Tensor:
        return right.capped(logits) if mended else logits.clone()

    return cap


def cap_after_bias(mended: bool) -> Loss:
    """The bias is inside the cap on one of two paths."""

    def cap(scores: Tensor, bias: Tensor) -> Tensor:
        return right.capped_before_bias(scores, bias) if mended else right.capped(scores + bias)

    return cap


def dropout_in_evaluation(mended: bool) -> Loss:
    """The functional attention drops whatever the module's mode is."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.0 if mended else 0.1)

    return attention


def causal_mask_dropped(mended: bool) -> Loss:
    """The causal mask is left to a fused kernel, and another path runs."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return right.attention(q, k, v) if mended else right.plain_attention(q, k, v)

    return attention


def mask_inverted(mended: bool) -> Loss:
    """A mask of what is hidden is handed to a function that takes what is seen."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1)
        return right.masked_attention(q, k, v, ~hidden if mended else hidden)

    return attention


def mask_top_left(mended: bool) -> Loss:
    """The causal mask begins at the first key, although queries follow those of a cache."""

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (right.bottom_right_attention if mended else right.attention)(q, k, v)

    return attention


def packed_documents_mixed(mended: bool) -> Loss:
    """A mask of ones switches the detection of packed documents off."""

    def attention(q: Tensor, k: Tensor, v: Tensor, documents: Tensor) -> Tensor:
        return right.packed_attention(q, k, v, documents) if mended else right.attention(q, k, v)

    return attention


class DropoutOffForever(Distillation):
    """Once the student has answered in evaluation, nothing is dropped in training any more."""

    def student_logits(self, tokens: Tensor, weights: object = None) -> Tensor:
        """Set the shares to 0, and leave them so."""
        answer = super().student_logits(tokens, weights)  # type: ignore[arg-type]
        for module in self.student.modules():
            if hasattr(module, "attention_dropout"):
                setattr(module, "attention_dropout", 0.0)  # noqa: B010 - no attribute of every module
        return answer
