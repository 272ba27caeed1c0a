"""The expected content of a dynamic embedding table: a dict from keys to rows in float64.

It applies the rules of `dynamic_tables` one key after another, without slots, digests or hash tables of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from falsifiers.recsys.dynamic_tables import Recipe

BUCKET = 128
_WORD = (1 << 64) - 1


def mixed(key: int) -> int:
    """Return the 64-bit finaliser of MurmurHash3."""
    word = key & _WORD
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = ((word ^ (word >> 33)) * factor) & _WORD
    return word ^ (word >> 33)


def turned(key: int) -> int:
    """Return the bits of a key's hash in reverse order."""
    return int(f"{mixed(key):064b}"[::-1], 2)


def owner_of(key: int, ranks: int) -> int:
    """Return the rank that owns a key."""
    return (mixed(key) >> 32) % ranks


def keys_in_bucket(bucket: int, buckets: int, number: int, start: int) -> list[int]:
    """Return keys that share a bucket, small and huge ones of both signs."""
    keys: list[int] = []
    step = 0x5851F42D4C957F2D
    word = (start * step + 1) & _WORD
    while len(keys) < number:
        word = (word * 6364136223846793005 + 1442695040888963407) & _WORD
        key = word - (1 << 64) if word >> 63 else word
        key = key >> 40 if len(keys) % 3 == 0 else key
        if mixed(key) % buckets == bucket and key not in keys:
            keys.append(key)
    return keys


@dataclass
class Entry:
    """The content of a key.

    Attributes:
        value: [dim] float64.
        score: as the recipe says; for times, the number of the lookup.
        state: the optimizer's, by name: [dim], or [] for a single number.
    """

    value: Tensor
    score: int
    state: dict[str, Tensor]


class Model:
    """A table.

    Attributes:
        entries: by key.
        buckets: their number; each has 128 slots.
        refused: the keys of the last lookup that found no slot.
        evicted: the keys that the last lookup evicted.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.buckets = recipe, recipe.buckets
        self.entries: dict[int, Entry] = {}
        self._hashes: dict[int, int] = {}
        self._mates: dict[int, set[int]] = {}
        self._columns = [mixed((recipe.seed << 32) + column) for column in range(recipe.dim)]
        self.updates = self.lookups = 0
        self.refused: set[int] = set()
        self.evicted: set[int] = set()

    @property
    def capacity(self) -> int:
        return self.buckets * BUCKET

    def train(self, keys: Sequence[int], score: int | None = None) -> Tensor:
        """Look keys up, insert new ones, and return the rows [n, dim]."""
        self.lookups += 1
        self.refused, self.evicted = set(), set()
        times: dict[int, int] = {}
        for key in keys:
            times[key] = times.get(key, 0) + 1
        new = sorted((key for key in times if key not in self.entries), key=turned)
        self.grow(len(new))
        for key, number in times.items():
            if key in self.entries:
                entry = self.entries[key]
                entry.score = self._score(entry.score, number, score)
        for key in new:
            self._insert(key, self._score(0, times[key], score), times)
        return self.rows(keys)

    def grow(self, more: int) -> None:
        """Double the table until it is at most half full with these additional keys."""
        while self.buckets < self.recipe.most_buckets and (len(self.entries) + more) * 2 > self.capacity:
            self.buckets *= 2
            self._mates = {}
            for key in self.entries:
                self._mates_of(key).add(key)

    def rows(self, keys: Sequence[int]) -> Tensor:
        nothing = torch.zeros(self.recipe.dim, dtype=torch.float64)
        values = [self.entries[key].value if key in self.entries else nothing for key in keys]
        return torch.stack(values) if values else nothing.new_empty(0, self.recipe.dim)

    def update(self, keys: Sequence[int], gradients: Tensor) -> None:
        """Make an optimizer's step with the sum of each key's gradients [n, dim]."""
        self.updates += 1
        sums: dict[int, Tensor] = {}
        for key, gradient in zip(keys, gradients.double().unbind(), strict=True):
            sums[key] = sums[key] + gradient if key in sums else gradient
        for key, gradient in sums.items():
            if key in self.entries:
                self._step(self.entries[key], gradient)

    def first_row(self, key: int) -> Tensor:
        """Return the value of a new key."""
        recipe = self.recipe
        if recipe.initial == "constant":
            return torch.full((recipe.dim,), recipe.spread, dtype=torch.float64)
        words = [mixed(mixed(key) ^ column) for column in self._columns]
        first = np.array([(2 * (word >> 41) + 1) / 2**24 for word in words])
        if recipe.initial == "uniform":
            return torch.from_numpy((2.0 * first - 1.0) * recipe.num_embeddings**-0.5)
        second = np.array([(2 * (word & (2**23 - 1)) + 1) / 2**24 for word in words])
        return torch.from_numpy(recipe.spread * np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * np.pi * second))

    def _score(self, before: int, number: int, given: int | None) -> int:
        if self.recipe.scoring == "lfu":
            return before + number
        if self.recipe.scoring == "custom":
            return int(given or 0)
        return self.lookups

    def _insert(self, key: int, score: int, batch: Mapping[int, int]) -> None:
        """Take a free slot of the key's bucket, else that of the lowest score, then of the smallest key."""
        mates = self._mates_of(key)
        if len(mates) == BUCKET:
            leaving = min(
                (mate for mate in mates if mate not in batch),
                key=lambda key: (self.entries[key].score, key),
                default=None,
            )
            if leaving is None:
                self.refused.add(key)
                return
            del self.entries[leaving]
            mates.remove(leaving)
            self.evicted.add(leaving)
        shapes = {"sgd": (), "adagrad": ("sum",), "rowwise_adagrad": ("sum",), "adam": ("m", "v")}
        shape = () if self.recipe.optimizer == "rowwise_adagrad" else (self.recipe.dim,)
        state = {name: torch.zeros(shape, dtype=torch.float64) for name in shapes[self.recipe.optimizer]}
        self.entries[key] = Entry(self.first_row(key), score, state)
        mates.add(key)

    def _mates_of(self, key: int) -> set[int]:
        """Return the keys in a key's bucket."""
        if key not in self._hashes:
            self._hashes[key] = mixed(key)
        return self._mates.setdefault(self._hashes[key] % self.buckets, set())

    def _step(self, entry: Entry, slope: Tensor) -> None:
        recipe, state = self.recipe, entry.state
        if recipe.optimizer == "sgd":
            change = slope
        elif recipe.optimizer == "adam":
            state["m"] = 0.9 * state["m"] + 0.1 * slope
            state["v"] = 0.999 * state["v"] + 0.001 * slope**2
            m = state["m"] / (1.0 - 0.9**self.updates)
            change = m / ((state["v"] / (1.0 - 0.999**self.updates)).sqrt() + recipe.eps)
        else:
            squares = slope**2
            state["sum"] = state["sum"] + (squares if recipe.optimizer == "adagrad" else squares.mean())
            change = slope / (state["sum"].sqrt() + recipe.eps)
        entry.value = entry.value - recipe.rate * change
