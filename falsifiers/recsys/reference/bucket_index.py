"""Which slot a key has: buckets of 128 slots on a device, read and written by the kernels of `table_kernels`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from falsifiers.recsys.reference.key_groups import KeyGroups
from falsifiers.recsys.reference.table_kernels import (
    find_keys,
    free_slots,
    insert_groups,
    split_buckets,
    touch_groups,
)
from falsifiers.recsys.reference.table_launch import aligned, blocks_of, launch, power_from

SLOTS = 128
KEYS = (32, 4)
"""Of a program that searches, and its warps, on a GPU."""
_GROUPS, _CHUNK = 64, 32
"""Of a program that inserts, and how many of a bucket's it takes at a time."""


@dataclass(frozen=True)
class Touched:
    """What an index has for the groups of a batch.

    Attributes:
        slots: [n] int64, of each group's key; -1 if it has none.
        fresh: [n] int8: 0 if the key was there or is not wanted, 1 if it is new, 2 if another one has left for it.
        gone: [n] int64, which one.
    """

    slots: Tensor
    fresh: Tensor
    gone: Tensor

    @property
    def took(self) -> Tensor:
        """Which groups took another key's slot, [n] bool."""
        return self.fresh == 2


class BucketIndex:
    """A hash table of int64 keys, without values.

    Attributes:
        digests, keys, scores, batches: [slots], as `table_kernels` says.
        batch: the number of the present batch, whose keys are not evicted.
        number: how many keys there are, on the device.
        newest: the last batch that wanted a key which was not there, on the device.
    """

    def __init__(self, buckets: int, device: torch.device) -> None:
        """`buckets` is a power of two."""
        if buckets < 1 or buckets & (buckets - 1):
            raise ValueError(f"{buckets} buckets: their number must be a power of two")
        self.device, self.batch = device, 0
        self.number, self.newest = (torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2))
        self._allocate(buckets)

    @property
    def capacity(self) -> int:
        """Slots."""
        return len(self.keys)

    @property
    def buckets(self) -> int:
        """Of 128 slots."""
        return len(self.keys) // SLOTS

    @property
    def size(self) -> int:
        """How many keys there are. The host waits."""
        return int(self.number)

    def find(self, keys: Tensor, groups: KeyGroups | None = None, among: Tensor | None = None) -> Tensor:
        """Return the slot of each key, -1 for those that are not there.

        Args:
            groups: the keys are theirs.
            among: [n] bool, for which of them to look.
        """
        keys, n = aligned(keys), len(keys)
        slots, (block, warps) = torch.empty_like(keys), self._searched(n)
        launch(
            find_keys, self.device, blocks_of(n, block),
            keys, keys if groups is None else groups.groups, keys if among is None else among, n, slots,
            self.digests, self.keys, self.buckets,
            grouped=groups is not None, selective=among is not None, block=block, warps=warps,
        )  # fmt: skip
        return slots

    def touch(self, of: KeyGroups, score: int | None, among: Tensor | None = None) -> Touched:
        """Find the groups' keys, and note that the batch asks for them.

        Args:
            score: of all keys; None if each occurrence adds one.
            among: [n] bool, which of them the batch wants.
        """
        n = len(of)
        touched = Touched(
            torch.empty_like(of.keys), torch.empty(n, dtype=torch.int8, device=self.device), torch.empty_like(of.keys)
        )
        block, warps = self._searched(n)
        launch(
            touch_groups, self.device, blocks_of(n, block),
            of.keys, of.groups, of.keys if among is None else among, n, touched.slots, touched.fresh, of.starts,
            of.totals, self.digests, self.keys, self.scores, self.batches, self.newest, self.buckets,
            score or 0, self.batch,
            selective=among is not None, counted=score is None, weighted=of.weighted, block=block, warps=warps,
        )  # fmt: skip
        return touched

    def insert(self, of: KeyGroups, touched: Touched, score: int | None) -> None:
        """Insert the fresh keys of a batch, and note in `touched` what became of them."""
        launch(
            insert_groups, self.device, blocks_of(len(of), _GROUPS),
            of.keys, of.groups, len(of), touched.slots, touched.fresh, touched.gone, of.starts, of.totals,
            self.digests, self.keys, self.scores, self.batches, self.number, self.newest, self.buckets, score or 0,
            self.batch,
            counted=score is None, weighted=of.weighted, block=_GROUPS, chunk=_CHUNK, warps=8,
        )  # fmt: skip

    def remove(self, of: KeyGroups, slots: Tensor) -> None:
        """Free slots [n], one for each group; -1 is none."""
        block = 1024
        launch(
            free_slots, self.device, blocks_of(len(of), block),
            slots, of.groups, len(of), self.digests, self.number, block=block,
        )  # fmt: skip

    def double(self) -> Tensor:
        """Double the buckets; return the new slot of each old one, -1 for free ones."""
        before = (self.digests, self.keys, self.scores, self.batches)
        moved, programs = torch.empty_like(self.keys), self.buckets
        self._allocate(2 * programs)
        after = (self.digests, self.keys, self.scores, self.batches)
        launch(split_buckets, self.device, programs, *before, *after, moved, self.buckets, warps=8)
        return moved

    def occupied(self) -> Tensor:
        """Return the slots that have a key. The host waits for their number."""
        return self.digests.nonzero().squeeze(1)

    def _searched(self, keys: int) -> tuple[int, int]:
        return KEYS if self.device.type == "cuda" else (power_from(min(keys, 256)), 4)

    def _allocate(self, buckets: int) -> None:
        slots = buckets * SLOTS
        self.digests = torch.zeros(slots, dtype=torch.uint8, device=self.device)
        self.keys, self.scores, self.batches = (
            torch.zeros(slots, dtype=torch.int64, device=self.device) for _ in range(3)
        )
