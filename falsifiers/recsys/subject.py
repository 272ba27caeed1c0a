"""What the claims need from a subject."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

Way = Literal["forward", "backward"]


@dataclass(frozen=True)
class Question:
    """Inputs of HSTU attention and of its gradients.

    Attributes:
        q, k: [rows of all sequences, heads, width], all of one dtype; the numbers of a head are contiguous.
        v: [rows, heads, value width]; the same.
        grad_output: the gradient of a later loss with respect to the output, of its shape and dtype; any strides.
        offsets: [batch + 1] int64: where each sequence starts, and the end.
        max_seqlen: the length of the longest sequence, or more.
        scaling_seqlen: the divisor of silu.
        alpha: the factor of the scores.
        causal: a row attends only to itself and to earlier keys.
        num_targets: [batch] int64, or None: how many of the last rows of each sequence are targets.
        target_group_size: targets that attend to each other.
        num_contextuals: [batch] int64, or None: how many of the first rows of each sequence are contextual.
        max_attn_len: the largest distance to an attended key; 0 for any.
        min_full_attn_seq_len: this many last rows of the history, and the targets, are exempt from that limit.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    grad_output: Tensor
    offsets: Tensor
    max_seqlen: int
    scaling_seqlen: int
    alpha: float
    causal: bool
    num_targets: Tensor | None
    target_group_size: int
    num_contextuals: Tensor | None
    max_attn_len: int
    min_full_attn_seq_len: int


@dataclass(frozen=True)
class Answer:
    """The output [rows, heads, value width], and the gradients of the sum of `grad_output * output`."""

    out: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


class Attention(Protocol):
    """HSTU attention; built as `Subject(setting)`."""

    def __call__(self, question: Question) -> Answer:
        """Return output and gradients. Gradients must come from the output's own backward pass."""
        ...


class Operators(Protocol):
    """Attention as a GPU of a given compute capability runs it; built as `Subject(setting)`.

    `capability` is the major number, such as 9 for sm_90.
    """

    def operator(self, way: Way, capability: int) -> str:
        """Return the name of the operator that runs; raise ValueError if there is none."""
        ...

    def forward(self, question: Question, capability: int) -> Tensor:
        """Return the output; raise ValueError for inputs that this GPU does not support."""
        ...

    def backward(self, question: Question, capability: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v; raise ValueError for inputs that this GPU does not support."""
        ...


class Accounts(Protocol):
    """A trainer's figures of its work; built as `Subject(setting)`."""

    def attention(
        self, heads: int, width: int, counts: Sequence[Mapping[str, int]], *, causal: bool, backward: bool
    ) -> float:
        """Return the floating-point operations of a layer's attention.

        Args:
            counts: `length`, `contextuals` and `targets` of each sequence. The length counts all rows.
            backward: whether to count the backward pass too.
        """
        ...

    def summed(self, operations: float, tensor_parallel: int) -> float:
        """Return the operations of a step over all ranks. Each rank of torch.distributed's default group calls it.

        Args:
            operations: of the rank's whole batch.
            tensor_parallel: this many consecutive ranks have the same batch, and each passes its operations.
        """
        ...

    def peak(self, name: str) -> float:
        """Return the dense bfloat16 rate of a GPU with this name, in TFLOP/s."""
        ...

    def utilisation(self, operations: float, seconds: float, name: str, ranks: int) -> float:
        """Return the utilisation of the peak of all ranks, in per cent."""
        ...
