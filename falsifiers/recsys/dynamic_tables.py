"""What the claims about dynamic embedding tables need from a subject.

A table maps int64 keys to rows. Every int64 is a key; there is no reserved one. These numbers are part of the claims:

- `mixed(key)` is the 64-bit finaliser of MurmurHash3 on the key's bits.
- A key's bucket is `mixed(key) % buckets`. A bucket has 128 slots. `buckets` is a power of two.
- The owner of a key among `n` ranks is `(mixed(key) >> 32) % n`.
- A new row's column c has the hash `h = mixed(mixed(key) ^ mixed(seed * 2**32 + c))` and the numbers
  `a = (2 * (h >> 41) + 1) / 2**24` and `b = (2 * (h & (2**23 - 1)) + 1) / 2**24`, which are between 0 and 1.
  "uniform" is `(2 * a - 1) * bound` with `bound = sqrt(1 / num_embeddings)`, "normal" is
  `spread * sqrt(-2 * log(a)) * cos(2 * pi * b)`, "constant" is `spread`.

A training lookup joins equal keys of its batch. It sets the score of keys that the table has. Others are inserted:

1. If the distinct new keys would make the table hold more than half of its slots, it doubles until they do not, or
   until it has `most_buckets`.
2. In each bucket, new keys come in the order of their hash from its lowest bit. They take free slots, then those of the
   keys with the lowest score (of equal scores, the smallest key). A key of the same batch is never evicted.
3. A key that finds no slot is not inserted. Its row is 0 and gets no gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import Tensor

Optimizer = Literal["sgd", "adagrad", "rowwise_adagrad", "adam"]
Scoring = Literal["timestamp", "step", "lfu", "custom"]


@dataclass(frozen=True)
class Recipe:
    """The parameters of a table.

    Attributes:
        dim: numbers of a row.
        buckets, most_buckets: at first, and at most; powers of two.
        scoring: how a training lookup sets a key's score. "timestamp": the time of the lookup, later than any before.
            "step": the number of the lookup, from 1. "lfu": one more for each occurrence. "custom": the number passed
            with the lookup.
        optimizer: how a gradient changes a row; state begins at 0.
            "sgd": `row -= rate * g`.
            "adagrad": `sum += g * g; row -= rate * g / (sqrt(sum) + eps)`.
            "rowwise_adagrad": the same, with one sum for a row, of the mean of `g * g`.
            "adam": `m` and `v` with factors 0.9 and 0.999, both divided by `1 - factor ** updates`;
            `row -= rate * m / (sqrt(v) + eps)`. `updates` counts the table's; rows without a gradient do not change.
        initial, num_embeddings, spread, seed: see the module.
        cached_buckets: if not 0, rows are in host memory, and the device caches this many buckets of them.
    """

    dim: int
    buckets: int
    most_buckets: int
    scoring: Scoring = "timestamp"
    optimizer: Optimizer = "sgd"
    rate: float = 0.25
    eps: float = 1e-8
    initial: Literal["uniform", "normal", "constant"] = "uniform"
    num_embeddings: int = 1000
    spread: float = 1.0
    seed: int = 0
    cached_buckets: int = 0

    @staticmethod
    def of(parameters: Mapping[str, Any]) -> Recipe:
        """Return the recipe with these fields."""
        return Recipe(**parameters)


class Table(Protocol):
    """One table, or one rank's part of a table. All keys are [n] int64 on the table's device."""

    def train(self, keys: Tensor, score: int | None = None) -> Tensor:
        """Return rows [n, dim] in float32, whose backward pass updates the table: the sum of each key's gradients.

        Raises:
            ValueError: the recipe's scoring is "custom", and no score is given.
        """
        ...

    def evaluate(self, keys: Tensor) -> Tensor:
        """Return rows [n, dim]: 0 for keys that the table lacks. Nothing of the table changes."""
        ...

    def size(self) -> int:
        """Return how many keys the table has."""
        ...

    def capacity(self) -> int:
        """Return how many slots the table has."""
        ...

    def dump(self, path: Path, at_least: int | None = None) -> None:
        """Write a safetensors file of all keys, or of those with a score of `at_least` or more, in any order.

        Its tensors are `keys` [n] int64, `values` [n, dim] float32, `scores` [n] int64, and for the optimizer
        `state.sum` ([n, dim], or [n] of "rowwise_adagrad"), or `state.m` and `state.v` [n, dim]; and `counts` [3]
        int64: the optimizer's updates, the training lookups, and the buckets.
        """
        ...

    def load(self, path: Path) -> None:
        """Load the keys of such a file with all their state, and its counts if they are larger.

        A table with fewer buckets than the file's doubles until it has as many, or `most_buckets` if they are fewer.

        Raises:
            Exception: the file's rows have another `dim`. The table has not changed.
        """
        ...


class Tables(Protocol):
    """Makes tables; built as `Subject(setting)`."""

    def table(self, recipe: Recipe, device: str) -> Table:
        """Return an empty table."""
        ...

    def sharded(self, recipe: Recipe, device: str) -> Table:
        """Return this rank's part of a table over all ranks of torch.distributed's default group.

        Each rank has a table with this recipe for the keys that it owns. All ranks call `train`, its backward pass and
        `evaluate` together, each with its own keys. `size`, `capacity` and `dump` cover the rank's part; `load` takes
        the keys that the rank owns.
        """
        ...
