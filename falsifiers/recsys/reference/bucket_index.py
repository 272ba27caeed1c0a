"""A hash index from keys to slots: buckets of 128 slots on a device, used by the kernels of `table_kernels`."""

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
"""Keys per program in a search, and warps, on a GPU."""
_GROUPS, _CHUNK = 64, 32
"""Groups per inserting program, and how many of a bucket's groups it takes at a time."""


@dataclass(frozen=True)
class Touched:
    """The result of an index for the groups of a batch.

    Attributes:
        slots: [n] int64, of each group's key; -1 if it has none.
        fresh: [n] int8: 0 if the key was present or is not requested, 1 if it is new, 2 if it replaced another one.
        gone: [n] int64, the replaced key.
    """

    slots: Tensor
    fresh: Tensor
    gone: Tensor

    @property
    def took(self) -> Tensor:
        """Which groups replaced another key, [n] bool."""
        return self.fresh == 2


class BucketIndex:
    """A hash table of int64 keys, without values.

    Attributes:
        digests, keys, scores, batches: [slots], see `table_kernels`.
        batch: the number of the present batch, whose keys are not evicted.
        number: the number of keys, on the device.
        newest: the last batch that requested an absent key, on the device.
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
        return len(self.keys)

    @property
    def buckets(self) -> int:
        return len(self.keys) // SLOTS

    @property
    def size(self) -> int:
        """The number of keys. The host waits."""
        return int(self.number)

    def find(self, keys: Tensor, groups: KeyGroups | None = None, among: Tensor | None = None) -> Tensor:
        """Return the slot of each key; -1 for absent keys.

        Args:
            groups: the groups of the keys.
            among: [n] bool, which keys to search.
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
        """Find the groups' keys, and mark them as requested by the batch.

        Args:
            score: of all keys; None if each occurrence adds one.
            among: [n] bool, which of them the batch requests.
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
        """Insert the fresh keys of a batch, and record the result in `touched`."""
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
        """Return the occupied slots. The host waits for their number."""
        return self.digests.nonzero().squeeze(1)

    def _searched(self, keys: int) -> tuple[int, int]:
        return KEYS if self.device.type == "cuda" else (power_from(min(keys, 256)), 4)

    def _allocate(self, buckets: int) -> None:
        slots = buckets * SLOTS
        self.digests = torch.zeros(slots, dtype=torch.uint8, device=self.device)
        self.keys, self.scores, self.batches = (
            torch.zeros(slots, dtype=torch.int64, device=self.device) for _ in range(3)
        )
