"""What the claims about the loss need from a subject: hidden states and a head in, a loss and its gradients out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

__all__ = ["Answer", "HeadLoss", "Question"]


@dataclass(frozen=True)
class Question:
    """Inputs of one call.

    Attributes:
        hidden: [rows, width].
        weight: [vocabulary, width], of the same dtype; the logits are `hidden @ weight.T`.
        targets: token ids [rows], int64.
        ignore_index: the target of rows that have neither loss nor gradient.
        label_smoothing: the share of a target's probability that is spread over the whole vocabulary.
        z_loss: the factor of the squared logarithm of the sum of exponentials.
        softcap: each logit x becomes softcap * tanh(x / softcap) first; 0 for no cap.
        reduction: over the rows that count; a mean over none is 0.
        float32_sums: the head's gradient is summed in float32 at least, whatever the dtype of the head.
        upstream: the gradient of some later loss with respect to this one: a scalar, or [rows] with reduction "none".
    """

    hidden: Tensor
    weight: Tensor
    targets: Tensor
    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float
    reduction: Literal["mean", "sum", "none"]
    float32_sums: bool
    upstream: Tensor


@dataclass(frozen=True)
class Answer:
    """What the subject made of it.

    Attributes:
        loss: in nats: a scalar, or [rows] with reduction "none".
        of_hidden, of_weight: gradients of the sum of `upstream * loss`, of the shapes of `hidden` and `weight`.
    """

    loss: Tensor
    of_hidden: Tensor
    of_weight: Tensor


class HeadLoss(Protocol):
    """The loss of a language model's head; built as `Subject(setting)`."""

    def __call__(self, question: Question) -> Answer:
        """Return the loss and its gradients."""
        ...
