"""What the claims need from a subject: a loss of a head, a trainer's accounts of itself, or published figures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from harness import Trial


@dataclass(frozen=True)
class Question:
    """The inputs of one call.

    Attributes:
        hidden: [rows, width].
        weight: [vocabulary, width], of the same dtype; the logits are `hidden @ weight.T`.
        targets: token ids [rows], int64.
        ignore_index: the target of rows without loss and gradient.
        label_smoothing: the share of a target's probability that is spread over the whole vocabulary.
        z_loss: the factor of the squared logarithm of the sum of exponentials.
        softcap: each logit x becomes softcap * tanh(x / softcap) first; 0 for no cap.
        reduction: over the rows that count; a mean over none is 0.
        float32_sums: the head's gradient is summed in float32 or better, whatever the dtype of the head.
        upstream: the gradient of a later loss with respect to this one: a scalar, or [rows] with reduction "none".
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
    """The subject's answer.

    Attributes:
        loss: in nats: a scalar, or [rows] with reduction "none".
        grad_hidden, grad_weight: gradients of the sum of `upstream * loss`, of the shapes of `hidden` and `weight`.
    """

    loss: Tensor
    grad_hidden: Tensor
    grad_weight: Tensor


class HeadLoss(Protocol):
    """The loss of a language model's head; built as `Subject(setting)`."""

    def __call__(self, question: Question) -> Answer:
        """Return the loss and its gradients."""
        ...


class Accounts(Protocol):
    """What a trainer computes before it trains; built as `Subject(setting)`."""

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


@dataclass(frozen=True)
class Batch:
    """The batch of a step.

    Attributes:
        tokens, targets: ids [rows, sequence], int64; a target of -1 is ignored.
    """

    tokens: Tensor
    targets: Tensor


Parts = Mapping[str, float]
"""The shares of a step in percent: of `data`, `forward` and `backward`."""


class Paths(Protocol):
    """A trainer whose step can take several kernel paths, by name; built as `Subject(setting)`."""

    def batch(self) -> Batch:
        """Return the batch of a step, on the device of the setting."""
        ...

    def loss(self, path: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """Return the loss of a path: a function of hidden states, head and targets to the mean."""
        ...

    def model(self, path: str) -> torch.nn.Module:
        """Return a new model on a path. Equal settings give equal weights on every path."""
        ...

    def forward(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        """Return the loss of a model of `model`."""
        ...

    def parts(
        self, path: str, batch: Batch, steps: int, synchronize: Callable[[], object], clock: Callable[[], float]
    ) -> Parts:
        """Return the shares of the parts of some steps on a path, as the trainer measures them.

        Args:
            synchronize: waits until all launched work is done. The wait itself may take long. The time of a part
                includes one wait, at its end.
            clock: returns the time; work that is not done yet is not included.
        """
        ...


class MaybeCompiled(Protocol):
    """The mean loss of a head, eager and compiled, from hidden states, head and targets; -1 is ignored."""

    def eager(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """Return the eager loss."""
        ...

    def compiled(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """Return the loss under torch.compile."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Return the variables of a process in which torch captures scalars, so that `.item()` breaks no graph."""
        ...


class BoundAnalysis(Protocol):
    """Names the limit of a workload; built as `Subject(setting)`."""

    def bound(self, operations: float, moved: float, peak_operations: float, peak_bytes: float) -> str:
        """Return "memory" or "compute".

        Args:
            operations: floating-point operations.
            moved: bytes read and written.
            peak_operations, peak_bytes: peak rates of the device per second.
        """
        ...


class AllocatorSetting(Protocol):
    """How a trainer sets torch's allocator; built as `Subject(setting)`."""

    def environment(self) -> Mapping[str, str]:
        """Return the variables with which its process starts."""
        ...

    def late(self) -> Mapping[str, str]:
        """Return the variables that it sets after its first tensor is on the GPU."""
        ...


class Changelog(Protocol):
    """The figures that a changelog publishes; built as `Subject(setting)`."""

    def figures(self) -> Mapping[str, Any]:
        """Return the figures by name, as the contract's parameters name them."""
        ...


def read_back(trial: Trial[Any], model: torch.nn.Module) -> None:
    """Record the devices and the dtypes of a model's parameters."""
    devices = {parameter.device.type for parameter in model.parameters()}
    dtypes = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()}
    trial.resolve(device="+".join(sorted(devices)), dtype="+".join(sorted(dtypes)))
