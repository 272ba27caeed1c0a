"""What the claims need from a subject: a loss of a head, a trainer's accounts of itself, or published figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

__all__ = ["Accounts", "Answer", "Changelog", "HeadLoss", "Question"]


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


class Accounts(Protocol):
    """What a trainer computes about itself before it trains; built as `Subject(setting)`."""

    def model(self, shape: Mapping[str, int]) -> torch.nn.Module:
        """Return the model of `layers`, `width`, `heads`, `vocabulary` and `sequence`, on torch's default device.

        Called with tokens and targets [rows, sequence], it returns the mean loss.
        """
        ...

    def flops_per_token(self, shape: Mapping[str, int]) -> float:
        """Return the floating-point operations of a training step for each token of a batch."""
        ...

    def iterations(self, shape: Mapping[str, int], tokens_per_parameter: float, batch: Mapping[str, int]) -> int:
        """Return the number of optimizer steps.

        Args:
            tokens_per_parameter: tokens to train on, for each parameter of the model.
            batch: `rows` of a micro-batch and `accumulated` micro-batches of a step.
        """
        ...


class Changelog(Protocol):
    """The figures that a changelog publishes; built as `Subject(setting)`."""

    def figures(self) -> Mapping[str, Any]:
        """Return them by name, as the contract's parameters name them."""
        ...
