"""The simulated allocator agrees with torch's documentation and source."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tools.probe import AllocatorSettings, CachingAllocator, OutOfMemory, ProbeError

KIB, MIB = 1024, 1024**2


@pytest.mark.parametrize(
    ("requested", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, KIB, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (31 * MIB, 32 * MIB, 32 * MIB),  # the rest is not split off, because it is not more than 1 MiB
    ],
)
def test_one_request(requested: int, allocated: int, reserved: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(requested)
    assert (allocator.allocated, allocator.reserved) == (allocated, reserved)


def test_small_requests_share_a_segment() -> None:
    allocator = CachingAllocator()
    for _ in range(4096):
        allocator.allocate(1)
    assert (allocator.allocated, allocator.reserved) == (2 * MIB, 2 * MIB)
    allocator.allocate(1)
    assert allocator.reserved == 4 * MIB


def test_the_smallest_free_block_that_is_large_enough_is_used() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size * MIB) for size in (64, 32, 16)]
    for block in blocks:
        allocator.free(block)
    assert allocator.allocate(30 * MIB).size == 30 * MIB
    assert allocator.reserved == 112 * MIB
    assert allocator.allocate(60 * MIB).size == 60 * MIB
    assert allocator.reserved == 112 * MIB


def test_neighbours_that_are_free_become_one_block() -> None:
    allocator = CachingAllocator()
    first, second, third = (allocator.allocate(6 * MIB) for _ in range(3))
    assert allocator.reserved == 20 * MIB
    for block in (first, third, second):
        allocator.free(block)
    assert allocator.allocate(20 * MIB).size == 20 * MIB
    assert allocator.reserved == 20 * MIB


def test_a_stream_does_not_use_what_another_freed() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(16 * MIB, stream=0))
    allocator.allocate(16 * MIB, stream=1)
    assert allocator.reserved == 32 * MIB


def test_segments_without_a_block_in_use_are_given_back_at_the_limit() -> None:
    allocator = CachingAllocator(limit=40 * MIB)
    allocator.free(allocator.allocate(32 * MIB))
    allocator.allocate(36 * MIB)
    assert (allocator.reserved, allocator.retries) == (36 * MIB, 1)
    with pytest.raises(OutOfMemory) as raised:
        allocator.allocate(6 * MIB)
    assert raised.value.requested == 6 * MIB


def test_a_segment_that_is_split_is_kept_at_the_limit() -> None:
    allocator = CachingAllocator(limit=40 * MIB)
    kept, freed = allocator.allocate(16 * MIB), allocator.allocate(20 * MIB)
    allocator.free(freed)
    allocator.free(kept)
    allocator.allocate(3 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.allocate(30 * MIB)


def test_expandable_segments_grow_by_pages() -> None:
    allocator = CachingAllocator(AllocatorSettings(expandable_segments=True))
    first = allocator.allocate(31 * MIB)
    assert (allocator.allocated, allocator.reserved) == (31 * MIB, 40 * MIB)
    second = allocator.allocate(31 * MIB)
    assert allocator.reserved == 80 * MIB
    allocator.free(first)
    allocator.free(second)
    allocator.allocate(100 * MIB)
    assert (allocator.allocated, allocator.reserved) == (100 * MIB, 100 * MIB)


def test_an_expandable_segment_gives_whole_pages_back() -> None:
    allocator = CachingAllocator(AllocatorSettings(expandable_segments=True), limit=100 * MIB)
    first, second = allocator.allocate(50 * MIB), allocator.allocate(40 * MIB)
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.reserved == 60 * MIB  # the pages of 40 to 100 MiB; the second block begins at 50
    allocator.free(second)
    allocator.allocate(100 * MIB)
    assert allocator.reserved == 100 * MIB


def test_garbage_is_collected_above_the_threshold_only() -> None:
    settings = AllocatorSettings(garbage_collection_threshold=0.5)
    allocator = CachingAllocator(settings, limit=100 * MIB)
    allocator.free(allocator.allocate(30 * MIB))
    allocator.allocate(40 * MIB)
    assert allocator.reserved == 40 * MIB
    assert allocator.retries == 0


def test_settings_are_those_of_the_environment() -> None:
    text = "expandable_segments:True,garbage_collection_threshold:0.8,max_split_size_mb:64"
    settings = AllocatorSettings.of_environment({"PYTORCH_CUDA_ALLOC_CONF": text})
    assert settings == AllocatorSettings(True, 0.8, 64 * MIB)
    assert AllocatorSettings.of_environment({}) == AllocatorSettings()


@pytest.mark.parametrize("text", ["backend:cudaMallocAsync", "roundup_power2_divisions:4"])
def test_settings_that_are_not_simulated_are_refused(text: str) -> None:
    with pytest.raises(ProbeError):
        AllocatorSettings.of_environment({"PYTORCH_ALLOC_CONF": text})


@given(
    st.lists(st.tuples(st.integers(1, 64 * MIB), st.integers(0, 1), st.booleans()), max_size=40),
    st.booleans(),
)
def test_no_block_overlaps_another_and_all_can_be_given_back(
    requests: list[tuple[int, int, bool]], expandable: bool
) -> None:
    allocator = CachingAllocator(AllocatorSettings(expandable_segments=expandable))
    held = []
    for requested, stream, is_kept in requests:
        block = allocator.allocate(requested, stream)
        assert block.size >= requested
        held.append(block)
        if not is_kept:
            allocator.free(held.pop(len(held) // 2))
        spans = sorted((block.address, block.address + block.size) for block in held)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert sum(block.size for block in held) == allocator.allocated <= allocator.reserved
    for block in held:
        allocator.free(block)
    assert allocator.allocated == 0
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_of_free_blocks_of_one_size_the_newest_is_taken() -> None:
    """The driver gives each segment a lower address, and the allocator takes the lowest."""
    allocator = CachingAllocator()
    blocks = [allocator.allocate(30 * MIB) for _ in range(3)]
    for block in blocks:
        allocator.free(block)
    assert allocator.allocate(30 * MIB).address == blocks[2].address < blocks[1].address < blocks[0].address
