"""Which slot a key has: buckets of 128 slots on a device, read and written by the kernels of `table_kernels`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from falsifiers.recsys.reference import table_kernels
from falsifiers.recsys.reference.interpreter import interpreted

__all__ = ["KEYS", "SLOTS", "BucketIndex", "Fresh", "Inserted", "launch"]

SLOTS = 128
KEYS = (32, 4)
"""Of a program that searches, and its warps, on a GPU."""


@dataclass(frozen=True)
class Fresh:
    """Distinct new keys, in order.

    Attributes:
        keys: [n] int64.
        counts: [n] int64, how often each occurs.
        items: which items of the batch have a new key.
        places: for each of these items, its key's place in `keys`.
    """

    keys: Tensor
    counts: Tensor
    items: Tensor
    places: Tensor


@dataclass(frozen=True)
class Inserted:
    """What became of new keys.

    Attributes:
        slots: of each key, -1 if it has none.
        freed: the slots that had another key before.
        gone: these other keys.
    """

    slots: Tensor
    freed: Tensor
    gone: Tensor


class BucketIndex:
    """A hash table of int64 keys, without values.

    Attributes:
        digests, keys, scores, batches: [slots], as `table_kernels` says.
        batch: the number of the present batch, whose keys are not evicted.
        size: how many keys there are.
        version: another number whenever a key may have got or lost a slot.
    """

    def __init__(self, buckets: int, device: torch.device) -> None:
        """`buckets` is a power of two."""
        if buckets < 1 or buckets & (buckets - 1):
            raise ValueError(f"{buckets} buckets: their number must be a power of two")
        self.device, self.size, self.batch, self.version = device, 0, 0, 0
        self._allocate(buckets)

    @property
    def capacity(self) -> int:
        """Slots."""
        return len(self.keys)

    @property
    def buckets(self) -> int:
        """Of 128 slots."""
        return len(self.keys) // SLOTS

    def find(self, keys: Tensor) -> Tensor:
        """Return the slot of each key, -1 for those that are not there."""
        return self._find(keys, touch=False, counted=False, score=0, weights=None)

    def touch(self, keys: Tensor, score: int | None, weights: Tensor | None = None) -> Tensor:
        """Return the slot of each key, and note that the batch asks for it.

        Args:
            score: of all keys; None if each occurrence adds one.
            weights: what each occurrence adds instead of one, int64.
        """
        return self._find(keys, touch=True, counted=score is None, score=score or 0, weights=weights)

    def fresh(self, keys: Tensor, slots: Tensor, weights: Tensor | None = None) -> Fresh | None:
        """Return the distinct keys that have no slot; None if all have one. The host waits for their number."""
        items = (slots < 0).nonzero().squeeze(1)
        if not len(items):
            return None
        distinct, places, counts = keys[items].unique(return_inverse=True, return_counts=True)
        if weights is not None:
            counts = torch.zeros_like(distinct).index_add_(0, places, weights[items])
        return Fresh(distinct, counts, items, places)

    def insert(self, keys: Tensor, scores: Tensor) -> Inserted:
        """Insert distinct keys, in order, which are not there."""
        self.version += 1
        order = (self.hashes(keys) & (self.buckets - 1)).sort(stable=True)
        which, counts = order.values.unique_consecutive(return_counts=True)
        found = torch.full_like(keys, -1)
        evicted = torch.zeros(len(keys), dtype=torch.int8, device=self.device)
        gone = torch.empty_like(keys)
        launch(
            "insert", self.device, len(which),
            which, counts.cumsum(0) - counts, counts, keys[order.indices], scores[order.indices], found, evicted, gone,
            self.digests, self.keys, self.scores, self.batches, self.batch, warps=8,
        )  # fmt: skip
        slots = torch.empty_like(found)
        slots[order.indices] = found
        out = evicted.nonzero().squeeze(1)
        self.size += int((found >= 0).sum()) - len(out)
        return Inserted(slots, found[out], gone[out])

    def remove(self, keys: Tensor) -> None:
        """Free the slots of keys, of which some may not be there."""
        self.version += 1
        slots = self.find(keys)
        slots = slots[slots >= 0]
        self.digests[slots] = 0
        self.size -= len(slots)

    def double(self) -> Tensor:
        """Double the buckets; return the new slot of each old one, -1 for free ones."""
        self.version += 1
        before = (self.digests, self.keys, self.scores, self.batches)
        moved, programs = torch.empty_like(self.keys), self.buckets
        self._allocate(2 * programs)
        after = (self.digests, self.keys, self.scores, self.batches)
        launch("split", self.device, programs, *before, *after, moved, self.buckets, warps=8)
        return moved

    def occupied(self) -> Tensor:
        """Return the slots that have a key."""
        return self.digests.nonzero().squeeze(1)

    def hashes(self, keys: Tensor) -> Tensor:
        """Return the hash of each key, whose lowest bits say its bucket."""
        out, block = torch.empty_like(keys), 1024 if self.device.type == "cuda" else 256
        launch("hashes", self.device, triton.cdiv(len(keys), block), keys, len(keys), out, block=block)
        return out

    def _find(self, keys: Tensor, *, touch: bool, counted: bool, score: int, weights: Tensor | None) -> Tensor:
        slots = torch.empty_like(keys)
        block, warps = KEYS if self.device.type == "cuda" else (triton.next_power_of_2(min(len(keys), 256) or 1), 4)
        launch(
            "find", self.device, triton.cdiv(len(keys), block),
            keys, len(keys), slots, self.digests, self.keys, self.scores, self.batches, self.buckets, score, self.batch,
            keys if weights is None else weights,
            touch=touch, counted=counted, weighted=weights is not None, block=block, warps=warps,
        )  # fmt: skip
        return slots

    def _allocate(self, buckets: int) -> None:
        slots = buckets * SLOTS
        self.digests = torch.zeros(slots, dtype=torch.uint8, device=self.device)
        self.keys, self.scores, self.batches = (
            torch.zeros(slots, dtype=torch.int64, device=self.device) for _ in range(3)
        )


def launch(name: str, device: torch.device, programs: int, *arguments: Any, warps: int = 4, **constants: Any) -> None:
    """Run a kernel of `table_kernels`; compiled on CUDA, interpreted on a CPU."""
    if not programs:
        return
    if device.type != "cuda":
        getattr(interpreted(table_kernels), name)[(programs,)](*arguments, **constants)
        return
    with torch.cuda.device(device):
        getattr(table_kernels, name)[(programs,)](*arguments, **constants, num_warps=warps)
