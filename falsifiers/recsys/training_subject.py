"""What the claims about training pipelines need from a subject."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from torch import Tensor

from falsifiers.recsys.streams import Streams

Kind = Literal["none", "native", "prefetch"]
"""Of a pipeline: no overlap; copies of the next batch overlap a step; gathers of its embedding rows do too."""


@dataclass(frozen=True)
class Recipe:
    """The model, how it is trained, and its pipeline.

    The weights are `tables.N` [rows, width] of each embedding table; `actions` [actions, width]; of each layer
    `layers.N.norm`, `.into`, `.norm_out` and `.out`, and of the head `head.0` and `head.1`, with `.weight` and `.bias`
    each. Layer norms are over the last dimension, with an epsilon of 1e-5.

    A token is the sum of its table's row and its action's row. A layer is, for jagged rows x,

        u, v, q, k = silu(into(norm(x))).split(…)     heads x head_width each, head after head
        x + out(norm_out(hstu(q, k, v)) * u)          causal, alpha 1/sqrt(head_width), targets in groups of one

    The logits of a row are head.1(silu(head.0(x))), and the loss is the mean of the binary cross-entropy of all of
    them.

    Attributes:
        rows: of each table.
        attention: "dense", in the dtype of the weights; or "fused", in bfloat16 by a kernel.
        optimizer: "sgd", or "adam" with bias correction; of tables, it updates only the rows of the batch.
        dynamic: ids are any numbers, and a table gives its next free row to an id that it has not seen. Else an id is
            its row.
    """

    rows: tuple[int, ...]
    width: int
    layers: int
    heads: int
    head_width: int
    scaling_seqlen: int
    attention: Literal["dense", "fused"]
    optimizer: Literal["sgd", "adam"]
    dynamic: bool
    rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8


@dataclass(frozen=True)
class Batch:
    """Interactions of some users, jagged, on the host. Each sequence has contextual tokens first, and candidates last.

    Attributes:
        tensors: `ids`, `tables`, `actions` [tokens]: a token's id, its table, and the user's action. `offsets` [users +
            1]. `contextuals` [users]: the number of contextual tokens. `targets` [users]: the number of candidates;
            absent if the history itself is ranked. `ranked` [ranked tokens]: the tokens with logits. `labels` [ranked
            tokens, tasks], of the weights' dtype.
        longest: no sequence is longer.
    """

    tensors: Mapping[str, Tensor]
    longest: int


@dataclass(frozen=True)
class Outcome:
    """The result of a step, before its update: the loss, and the logits [ranked tokens, tasks]."""

    loss: Tensor
    logits: Tensor


class Run(Protocol):
    """A model in training."""

    def train(self, batches: Sequence[Batch], steps: int) -> list[Outcome]:
        """Train on the next batches of a data set, from the run's position; then wait for the device.

        The host launches all steps before it waits.
        """
        ...

    def state(self) -> dict[str, Tensor]:
        """Return copies of everything that determines the rest of the training.

        The weights by name; with Adam `exp_avg.NAME` and `exp_avg_sq.NAME` of each; `step`, the updates so far; and
        `position`, the batches so far. For dynamic tables, `keys.N` has the ids in the order of their rows.
        """
        ...

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        ...

    def load(self, path: Path) -> None:
        """Continue from a checkpoint, which a run with another pipeline may have written."""
        ...


class Training(Protocol):
    """Training pipelines of a ranking model; built as `Subject(setting)`."""

    def begin(self, kind: Kind, recipe: Recipe, weights: Mapping[str, Tensor], streams: Streams) -> Run:
        """Return a run that starts from given weights. All work on the device goes through `streams`."""
        ...
