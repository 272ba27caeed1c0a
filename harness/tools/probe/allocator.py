"""torch's CUDA caching allocator, simulated: which segments it would ask the driver for.

The rules are those of `c10/cuda/CUDACachingAllocator.cpp` and `c10/core/AllocatorConfig.h` of torch 2.13, and of
torch's page "CUDA semantics, memory management":

- A request is rounded up to 512 bytes. Requests up to 1 MiB use the small pool, larger ones the large pool.
- A pool gives the smallest free block of the stream that is large enough. The rest of a block is split off: in the
  small pool if at least 512 bytes remain, in the large pool if more than 1 MiB remains.
- Without a free block, the driver gives a segment: 2 MiB for the small pool; 20 MiB for requests below 10 MiB;
  otherwise the request rounded up to 2 MiB.
- Of free blocks of one size, the allocator takes that with the lowest address. The driver mostly gives a segment an
  address below those of the ones before, but it first fills gaps upwards. Either direction can be simulated.
- A freed block is merged with its free neighbours in the segment. Segments stay reserved.
- If the limit is reached, segments without a block in use are given back, and the request is tried again.
- With expandable segments, each pool of a stream has one segment that grows by pages of 2 MiB in the small pool and of
  20 MiB in the large pool.
"""

from __future__ import annotations

import os
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.tools.probe.errors import ProbeError

__all__ = ["DOWNWARDS", "UPWARDS", "AllocatorSettings", "CachingAllocator", "OutOfMemory"]

DOWNWARDS, UPWARDS = -1, 1
KIB, MIB = 1024, 1024**2
_MIN_BLOCK = 512
_SMALL_REQUEST = MIB
_SMALL_SEGMENT = 2 * MIB
_LARGE_REQUEST = 10 * MIB
_LARGE_ROUNDING = 2 * MIB
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """What `PYTORCH_ALLOC_CONF` can say, as far as it changes what is reserved. Sizes are in bytes."""

    expandable_segments: bool = False
    garbage_collection_threshold: float = 0.0
    max_split_size: int = _UNLIMITED
    max_non_split_rounding: int = 20 * MIB
    large_segment: int = 20 * MIB

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> AllocatorSettings:
        """The settings that a process with these variables would use.

        Raises:
            ProbeError: a setting changes the allocator in a way that is not simulated.
        """
        text = environment.get("PYTORCH_ALLOC_CONF") or environment.get("PYTORCH_CUDA_ALLOC_CONF") or ""
        settings = cls()
        for part in filter(None, (each.strip() for each in text.split(","))):
            name, _, value = part.partition(":")
            match name.strip():
                case "expandable_segments":
                    settings = replace(settings, expandable_segments=value.strip() == "True")
                case "garbage_collection_threshold":
                    settings = replace(settings, garbage_collection_threshold=float(value))
                case "max_split_size_mb":
                    settings = replace(settings, max_split_size=int(value) * MIB)
                case "max_non_split_rounding_mb":
                    settings = replace(settings, max_non_split_rounding=int(value) * MIB)
                case "large_segment_size_mb":
                    settings = replace(settings, large_segment=int(value) * MIB)
                case "backend" if value.strip() == "native":
                    pass
                case known if known.startswith("pinned_") or known == "graph_capture_record_stream_reuse":
                    pass
                case unknown:
                    raise ProbeError(f"PYTORCH_ALLOC_CONF: {unknown!r} is not simulated; unset it to probe")
        return settings


class OutOfMemory(Exception):
    """The simulated device has no room for a request, also after cached segments were given back."""

    def __init__(self, requested: int, reserved: int) -> None:
        super().__init__(f"{requested} bytes do not fit beside {reserved} reserved bytes")
        self.requested = requested
        self.reserved = reserved


class _Block:
    """A part of a segment. Blocks of a segment form a list by address."""

    __slots__ = ("address", "age_base", "following", "is_free", "is_mapped", "pool", "previous", "segment", "size")

    def __init__(self, pool: _Pool, segment: _Segment, address: int, size: int) -> None:
        self.pool = pool
        self.segment = segment
        self.address = address
        self.size = size
        self.is_free = True
        self.is_mapped = True
        self.previous: _Block | None = None
        self.following: _Block | None = None
        self.age_base = 0


@dataclass(slots=True)
class _Segment:
    page: int  # 0 for a segment of fixed size
    end: int
    start: int


class _Pool:
    """The free blocks of one size class of one stream, by size and address."""

    def __init__(self, is_small: bool) -> None:
        self.is_small = is_small
        self.free: list[tuple[int, int]] = []
        self.unmapped: list[tuple[int, int]] = []
        self.blocks: dict[int, _Block] = {}
        self.requests = 0

    def put(self, block: _Block) -> None:
        self.blocks[block.address] = block
        insort(self.free if block.is_mapped else self.unmapped, (block.size, block.address))

    def take(self, block: _Block) -> None:
        where = self.free if block.is_mapped else self.unmapped
        del where[bisect_left(where, (block.size, block.address))]


class CachingAllocator:
    """One device's allocator.

    Attributes:
        allocated: bytes in blocks in use, what `torch.cuda.memory_allocated()` would say.
        reserved: bytes in segments, what `torch.cuda.memory_reserved()` would say.
        peak_allocated, peak_reserved: the largest values of these so far.
        retries: how often segments had to be given back to satisfy a request.
    """

    def __init__(
        self, settings: AllocatorSettings | None = None, *, limit: int | None = None, direction: int = DOWNWARDS
    ) -> None:
        """Simulate an empty device on which at most `limit` bytes can be reserved."""
        self._settings = settings or AllocatorSettings()
        self._limit = _UNLIMITED if limit is None else limit
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._direction = direction
        self._next_address = _UNLIMITED
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = self.retries = 0

    def allocate(self, requested: int, stream: int = 0) -> _Block:
        """Return a block for a request of so many bytes.

        Raises:
            OutOfMemory: the limit does not allow it.
        """
        size = max(_MIN_BLOCK, -(-requested // _MIN_BLOCK) * _MIN_BLOCK)
        is_small = size <= _SMALL_REQUEST
        pool = self._pools.get((stream, is_small))
        if pool is None:
            pool = self._pools[stream, is_small] = _Pool(is_small)
        pool.requests += 1
        block = self._best_fit(pool, size)
        if block is None:
            self._collect_garbage(size)
            block = self._grown(pool, size)
        if block is None:
            self.retries += 1
            self.empty_cache()
            block = self._grown(pool, size)
        if block is None:
            raise OutOfMemory(requested, self.reserved)
        self._split(block, size)
        block.is_free = False
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def free(self, block: _Block) -> None:
        """Take a block back, and merge it with its free neighbours."""
        self.allocated -= block.size
        block.is_free = True
        block.age_base = block.pool.requests
        for neighbour in (block.previous, block.following):
            if neighbour is not None and neighbour.is_free and neighbour.is_mapped:
                block.pool.take(neighbour)
                self._absorb(block, neighbour)
        block.pool.put(block)

    def empty_cache(self) -> None:
        """Give all memory back that no block in use keeps, as `torch.cuda.empty_cache()` does."""
        for pool in self._pools.values():
            for _, address in tuple(pool.free):
                block = pool.blocks[address]
                if block.segment.page:
                    self._unmap(block)
                elif block.previous is None and block.following is None:
                    self._give_back(block)

    def _best_fit(self, pool: _Pool, size: int) -> _Block | None:
        at = bisect_left(pool.free, (size, -1))
        if at == len(pool.free):
            return None
        block = pool.blocks[pool.free[at][1]]
        if block.segment.page:
            for _, address in pool.free[at + 1 :]:
                other = pool.blocks[address]
                if _room(other) >= _room(block):
                    break
                block = other
        split = self._settings.max_split_size
        if size < split <= block.size:
            return None
        if size >= split and block.size >= size + self._settings.max_non_split_rounding:
            return None
        pool.take(block)
        return block

    def _split(self, block: _Block, size: int) -> None:
        rest = block.size - size
        if block.pool.is_small or block.segment.page:
            is_split = rest >= _MIN_BLOCK
        else:
            is_split = size < self._settings.max_split_size and rest > _SMALL_REQUEST
        if is_split:
            self._cut(block, size, is_mapped=True)

    def _cut(self, block: _Block, size: int, *, is_mapped: bool) -> None:
        """Shorten a block; what follows becomes a free block."""
        rest = _Block(block.pool, block.segment, block.address + size, block.size - size)
        rest.is_mapped = is_mapped
        rest.age_base = block.age_base
        rest.previous, rest.following = block, block.following
        if block.following is not None:
            block.following.previous = rest
        block.following = rest
        block.size = size
        block.pool.put(rest)

    def _absorb(self, block: _Block, neighbour: _Block) -> None:
        """Make a neighbour, which is in no list, a part of a block."""
        block.pool.blocks.pop(neighbour.address, None)
        if neighbour is block.previous:
            block.pool.blocks.pop(block.address, None)
            block.address, block.previous = neighbour.address, neighbour.previous
            if block.previous is not None:
                block.previous.following = block
        else:
            block.following = neighbour.following
            if block.following is not None:
                block.following.previous = block
        block.size += neighbour.size

    def _reserve(self, size: int) -> bool:
        if self.reserved + size > self._limit:
            return False
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def _grown(self, pool: _Pool, size: int) -> _Block | None:
        """A free block, in no list, in memory that the driver gives; none if the limit does not allow it."""
        if self._settings.expandable_segments:
            return self._expanded(pool, size)
        if size <= _SMALL_REQUEST:
            segment_bytes = _SMALL_SEGMENT
        elif size < _LARGE_REQUEST:
            segment_bytes = self._settings.large_segment
        else:
            segment_bytes = -(-size // _LARGE_ROUNDING) * _LARGE_ROUNDING
        if not self._reserve(segment_bytes):
            return None
        segment = self._new_segment(page=0, size=segment_bytes)
        block = _Block(pool, segment, segment.start, segment_bytes)
        pool.blocks[block.address] = block
        return block

    def _new_segment(self, *, page: int, size: int) -> _Segment:
        before = self._next_address
        self._next_address += self._direction * size
        start = min(before, self._next_address)
        return _Segment(page, start + size, start)

    def _expanded(self, pool: _Pool, size: int) -> _Block | None:
        block = self._expandable(pool, size)
        if not block.is_mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            following = block.following
            assert following is not None
            if not self._map(following, min(size - block.size, following.size)):
                return None
            block = following
        pool.take(block)
        return block

    def _expandable(self, pool: _Pool, size: int) -> _Block:
        """The first of free blocks, at least one of them unmapped, that are side by side and large enough together."""
        for _, address in pool.unmapped:
            block = pool.blocks[address]
            if block.previous is not None and block.previous.is_free:
                block = block.previous
            room, each = 0, block
            while room < size and each is not None and each.is_free:
                room += each.size
                each = each.following  # type: ignore[assignment]
            if room >= size:
                return block
        segment = self._new_segment(
            page=_SMALL_SEGMENT if pool.is_small else self._settings.large_segment, size=1 << 48
        )
        block = _Block(pool, segment, segment.start, segment.end - segment.start)
        block.is_mapped = False
        pool.put(block)
        return block

    def _map(self, block: _Block, size: int) -> bool:
        page, start = block.segment.page, block.segment.start
        end = start + -(-(block.address + size - start) // page) * page
        mapped = min(end - block.address, block.size)
        if not self._reserve(mapped):
            return False
        block.pool.take(block)
        if mapped < block.size:
            self._cut(block, mapped, is_mapped=False)
        block.is_mapped = True
        self.allocated += block.size
        self.free(block)
        return True

    def _unmap(self, block: _Block) -> None:
        """Give the whole pages of a free block back."""
        page, start = block.segment.page, block.segment.start
        first = start + -(-(block.address - start) // page) * page
        last = start + (block.address + block.size - start) // page * page
        if last <= first:
            return
        pool = block.pool
        pool.take(block)
        end = block.address + block.size
        if last < end:
            self._cut(block, last - block.address, is_mapped=True)
        middle = block
        if first > block.address:
            self._cut(block, first - block.address, is_mapped=True)
            pool.put(block)
            assert block.following is not None
            middle = block.following
            pool.take(middle)
        middle.is_mapped = False
        self.reserved -= middle.size
        for neighbour in (middle.previous, middle.following):
            if neighbour is not None and not neighbour.is_mapped:
                pool.take(neighbour)
                self._absorb(middle, neighbour)
        pool.put(middle)

    def _give_back(self, block: _Block) -> None:
        block.pool.take(block)
        del block.pool.blocks[block.address]
        self.reserved -= block.size

    def _collect_garbage(self, size: int) -> None:
        """Give old, whole segments of the large pools back, if the threshold is set and reached."""
        threshold = self._settings.garbage_collection_threshold
        if not threshold or self._limit == _UNLIMITED or self.reserved + size <= threshold * self._limit:
            return
        excess = self.reserved + size - int(threshold * self._limit)
        whole = [
            block
            for pool in self._pools.values()
            if not pool.is_small
            for block in (pool.blocks[address] for _, address in pool.free)
            if block.previous is None and block.following is None and not block.segment.page
        ]
        while whole and excess > 0:
            average = sum(_age(block) for block in whole) / len(whole)
            old = [block for block in whole if _age(block) >= average]
            for block in old:
                if excess > 0:
                    excess -= block.size
                    self._give_back(block)
                whole.remove(block)


def _room(block: _Block) -> int:
    """The size to which a block of an expandable segment could grow."""
    following = block.following
    return block.size + (following.size if following is not None and not following.is_mapped else 0)


def _age(block: _Block) -> int:
    return block.pool.requests - block.age_base
