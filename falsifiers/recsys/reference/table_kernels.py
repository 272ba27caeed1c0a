"""Triton kernels of the dynamic embedding table that find and insert keys.

A slot has a digest of 8 bits (0: the slot is free), a key, a score, and the number of the last batch that requested it.
No key means "free", so every int64 is a valid key. A lookup reads the 128 digests of a bucket, and the keys of equal
digests.

No kernel waits for another program. Equal keys of a batch are one group, and one program owns a bucket, so results are
deterministic. Only the number of keys uses an atomic addition.

The host does not know the number of groups of a batch. Kernels have programs for the largest possible number, and read
the actual one: the last element of `groups`.
"""

from __future__ import annotations

import triton
import triton.language as tl

_SLOTS = tl.constexpr(128)
NUMBERS = ["count", "buckets", "given", "batch", "seed", "programs", "scale", "first", "base"]
"""Arguments whose values do not trigger recompilation."""


@triton.jit
def _mixed(key):  # type: ignore[no-untyped-def]
    """Return the 64-bit finaliser of MurmurHash3, as uint64."""
    mixed = key.to(tl.uint64, bitcast=True)
    mixed = (mixed ^ (mixed >> 33)) * 0xFF51AFD7ED558CCD
    mixed = (mixed ^ (mixed >> 33)) * 0xC4CEB9FE1A85EC53
    return mixed ^ (mixed >> 33)


@triton.jit
def _reversed(word):  # type: ignore[no-untyped-def]
    """Return 64 bits in reverse order."""
    word = ((word >> 1) & 0x5555555555555555) | ((word & 0x5555555555555555) << 1)
    word = ((word >> 2) & 0x3333333333333333) | ((word & 0x3333333333333333) << 2)
    word = ((word >> 4) & 0x0F0F0F0F0F0F0F0F) | ((word & 0x0F0F0F0F0F0F0F0F) << 4)
    word = ((word >> 8) & 0x00FF00FF00FF00FF) | ((word & 0x00FF00FF00FF00FF) << 8)
    word = ((word >> 16) & 0x0000FFFF0000FFFF) | ((word & 0x0000FFFF0000FFFF) << 16)
    return (word >> 32) | (word << 32)


@triton.jit
def _digest(mixed):  # type: ignore[no-untyped-def]
    """Return 8 bits of a hash that do not depend on its bucket, and are not 0."""
    return tl.maximum((mixed >> 56).to(tl.int32), 1).to(tl.uint8)


@triton.jit
def _bucket(mixed, buckets):  # type: ignore[no-untyped-def]
    return (mixed & (buckets - 1).to(tl.uint64)).to(tl.int64)


@triton.jit
def _any(mask):  # type: ignore[no-untyped-def]
    """Return whether any lane is set."""
    return tl.reduce(mask.to(tl.int32), 0, tl.standard._elementwise_max) > 0  # type: ignore[attr-defined]


@triton.jit(do_not_specialize=NUMBERS)
def hash_keys(keys, count: tl.int32, out, turned: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the hash of each key; with `turned`, as a signed number that sorts by the reversed bits."""
    item = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    live = item < count
    word = _mixed(tl.load(keys + item, mask=live, other=0))
    if turned:
        word = _reversed(word) ^ 0x8000000000000000
    tl.store(out + item, word.to(tl.int64, bitcast=True), mask=live)


@triton.jit
def _sum(numbers):  # type: ignore[no-untyped-def]
    """Return the sum of the lanes as 32-bit numbers."""
    return tl.reduce(numbers.to(tl.int32), 0, tl.standard._sum_combine)  # type: ignore[attr-defined]


@triton.jit
def _heads(words, item, count):  # type: ignore[no-untyped-def]
    """Return where a word differs from the one before it."""
    live = item < count
    other = tl.load(words + item - 1, mask=live & (item > 0), other=0)
    return live & ((item == 0) | (tl.load(words + item, mask=live, other=0) != other))


@triton.jit(do_not_specialize=NUMBERS)
def count_heads(words, count: tl.int32, counts, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write how many groups of equal words begin in each block."""
    item = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(counts + tl.program_id(0), _sum(_heads(words, item, count)))


@triton.jit(do_not_specialize=NUMBERS)
def mark_groups(  # type: ignore[no-untyped-def]
    words, items, keys, counts, count: tl.int32, groups, starts, out, blocks: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """Write each item's group, each group's start, the end of the last group, and each group's key."""
    item = tl.program_id(0) * block + tl.arange(0, block)
    lane = tl.arange(0, blocks)
    before = _sum(tl.load(counts + lane, mask=lane < tl.program_id(0), other=0))
    head = _heads(words, item, count)
    group = before + tl.associative_scan(head.to(tl.int32), 0, tl.standard._sum_combine)  # type: ignore[attr-defined]
    tl.store(groups + item, group, mask=item < count)
    tl.store(starts + group - 1, item, mask=head)
    tl.store(starts + group, item + 1, mask=item == count - 1)
    key = tl.load(keys + tl.load(items + item, mask=head, other=0), mask=head, other=0)
    tl.store(out + group - 1, key, mask=head)


@triton.jit
def _occurrences(starts, totals, group, live, weighted: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the number of items of each group, or their weights, given the cumulative sums `totals`."""
    start = tl.load(starts + group, mask=live, other=0)
    end = tl.load(starts + group + 1, mask=live, other=0)
    if weighted:
        before = tl.load(totals + start - 1, mask=live & (start > 0), other=0)
        return tl.load(totals + end - 1, mask=live, other=0) - before
    return (end - start).to(tl.int64)


@triton.jit
def _found(keys, item, live, digests, table_keys, buckets):  # type: ignore[no-untyped-def]
    """Return the slot of each key, or -1."""
    key = tl.load(keys + item, mask=live, other=0)
    mixed = _mixed(key)
    place = (_bucket(mixed, buckets) * _SLOTS)[:, None] + tl.arange(0, _SLOTS)[None, :]
    alike = tl.load(digests + place, mask=live[:, None], other=0) == _digest(mixed)[:, None]
    alike = alike & (tl.load(table_keys + place, mask=alike, other=0) == key[:, None])
    return tl.reduce(tl.where(alike, place, -1), 1, tl.standard._elementwise_max)  # type: ignore[attr-defined]


@triton.jit(do_not_specialize=NUMBERS)
def find_keys(  # type: ignore[no-untyped-def]
    keys, groups, requested, count: tl.int32, slots, digests, table_keys, buckets: tl.int64,
    grouped: tl.constexpr, selective: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Write the slot of each key, or of each group's key; -1 for absent or excluded ones."""
    item = tl.program_id(0) * block + tl.arange(0, block)
    number = count
    if grouped:
        number = tl.load(groups + count - 1)
    if tl.program_id(0) * block < number:
        live = item < number
        if selective:
            live = live & (tl.load(requested + item, mask=live, other=0) != 0)
        tl.store(slots + item, _found(keys, item, live, digests, table_keys, buckets), mask=item < number)


@triton.jit(do_not_specialize=NUMBERS)
def touch_groups(  # type: ignore[no-untyped-def]
    keys, groups, requested, count: tl.int32, slots, fresh, starts, totals, digests, table_keys, scores, batches,
    newest, buckets: tl.int64, given: tl.int64, batch: tl.int64,
    selective: tl.constexpr, counted: tl.constexpr, weighted: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Write the slot of each group's key, or -1; store the batch, and set the score or count occurrences.

    `fresh` is 1 for requested keys that are absent. If there are any, `newest` becomes this batch.
    """
    group = tl.program_id(0) * block + tl.arange(0, block)
    number = tl.load(groups + count - 1)
    if tl.program_id(0) * block < number:
        live = group < number
        wanted = live
        if selective:
            wanted = live & (tl.load(requested + group, mask=live, other=0) != 0)
        slot = _found(keys, group, wanted, digests, table_keys, buckets)
        there = wanted & (slot >= 0)
        tl.store(slots + group, slot, mask=live)
        new = wanted & (slot < 0)
        tl.store(fresh + group, new.to(tl.int8), mask=live)
        if _any(new):
            tl.store(newest, batch)
        tl.store(batches + slot, tl.full([block], 0, tl.int64) + batch, mask=there)
        score = tl.full([block], 0, tl.int64) + given
        if counted:
            before = tl.load(scores + slot, mask=there, other=0)
            score = before + _occurrences(starts, totals, group, there, weighted)
        tl.store(scores + slot, score, mask=there)


@triton.jit(do_not_specialize=NUMBERS)
def insert_groups(  # type: ignore[no-untyped-def]
    new_keys, groups, count: tl.int32, slots, fresh, gone, starts, totals, digests, keys, scores, batches, size,
    newest, buckets: tl.int64, given: tl.int64, batch: tl.int64,
    counted: tl.constexpr, weighted: tl.constexpr, block: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Give the fresh keys of a bucket free slots, then the slots of the lowest scores; -1 if none is left.

    Groups of a bucket are adjacent; the program of the first one inserts them all. The k-th new key gets the k-th slot
    in this order: free ones, then those that this batch did not request, by score and key. If it replaces another key,
    `fresh` becomes 2 and `gone` is that key.
    """
    first = tl.program_id(0) * block
    number = tl.load(groups + count - 1)
    if (tl.load(newest) == batch) & (first < number):
        lane = tl.arange(0, block)
        group = first + lane
        live = group < number
        bucket = _bucket(_mixed(tl.load(new_keys + group, mask=live, other=0)), buckets)
        before = _bucket(_mixed(tl.load(new_keys + group - 1, mask=live & (group > 0), other=0)), buckets)
        head = live & ((group == 0) | (bucket != before))
        last = tl.reduce(tl.where(head, lane, -1), 0, tl.standard._elementwise_max)  # type: ignore[attr-defined]
        at = last
        if _any(live & (tl.load(fresh + group, mask=live, other=0) > 0)):
            at = block - tl.reduce(tl.where(head, block - lane, 0), 0, tl.standard._elementwise_max)  # type: ignore[attr-defined]
        while (at >= 0) & (at <= last):
            own = tl.reduce(tl.where(lane == at, bucket, 0), 0, tl.standard._elementwise_max)  # type: ignore[attr-defined]
            _insert(
                first + at, own, number, new_keys, slots, fresh, gone, starts, totals, digests, keys, scores, batches,
                size, buckets, given, batch, counted, weighted, chunk,
            )  # fmt: skip
            following = tl.where(head & (lane > at), block - lane, 0)
            at = block - tl.reduce(following, 0, tl.standard._elementwise_max)  # type: ignore[attr-defined]


@triton.jit
def _of_bucket(start, own, number, new_keys, fresh, buckets, chunk: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return which groups from `start` on are in the bucket, and which of them are new."""
    group = start + tl.arange(0, chunk)
    live = group < number
    mine = live & (_bucket(_mixed(tl.load(new_keys + group, mask=live, other=0)), buckets) == own)
    return mine, mine & (tl.load(fresh + group, mask=mine, other=0) > 0)


@triton.jit
def _insert(  # type: ignore[no-untyped-def]
    start, own, number, new_keys, slots, fresh, gone, starts, totals, digests, keys, scores, batches, size, buckets,
    given, batch, counted: tl.constexpr, weighted: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Insert the new keys of one bucket, whose groups begin at `start`."""
    new = tl.full([], 0, tl.int32)
    at = start
    more = tl.full([], chunk, tl.int32)
    while more == chunk:
        mine, is_new = _of_bucket(at, own, number, new_keys, fresh, buckets, chunk)
        new += _sum(is_new)
        more = _sum(mine)
        at += chunk
    if new > 0:
        lane = tl.arange(0, _SLOTS)
        slot = own * _SLOTS + lane
        free = tl.load(digests + slot) == 0
        kept = tl.load(batches + slot) == batch
        kind = tl.where(free, 0, tl.where(kept, 2, 1))
        key = tl.where(free, lane.to(tl.int64), tl.load(keys + slot))
        score = tl.where(free, 0, tl.load(scores + slot))
        lower_key = key[None, :] < key[:, None]
        lower_score = (score[None, :] < score[:, None]) | ((score[None, :] == score[:, None]) & lower_key)
        before = (kind[None, :] < kind[:, None]) | ((kind[None, :] == kind[:, None]) & lower_score)
        rank = tl.reduce(before.to(tl.int32), 1, tl.standard._sum_combine)  # type: ignore[attr-defined]
        taken = (kind < 2) & (rank < new)
        tl.atomic_add(size, _sum(taken & free).to(tl.int64))
        seen = tl.full([], 0, tl.int32)
        at = start
        while seen < tl.minimum(new, _SLOTS):
            mine, is_new = _of_bucket(at, own, number, new_keys, fresh, buckets, chunk)
            place = seen + tl.associative_scan(is_new.to(tl.int32), 0, tl.standard._sum_combine) - 1  # type: ignore[attr-defined]
            match = (rank[:, None] == place[None, :]) & taken[:, None] & is_new[None, :]
            group = tl.where(match, (at + tl.arange(0, chunk))[None, :], -1)
            group = tl.reduce(group, 1, tl.standard._elementwise_max)  # type: ignore[attr-defined]
            put = group >= 0
            new_key = tl.load(new_keys + group, mask=put, other=0)
            new_score = tl.full([_SLOTS], 0, tl.int64) + given
            if counted:
                new_score = _occurrences(starts, totals, group, put, weighted)
            tl.store(slots + group, slot, mask=put)
            tl.store(fresh + group, tl.full([_SLOTS], 2, tl.int8), mask=put & (kind == 1))
            tl.store(gone + group, key, mask=put & (kind == 1))
            tl.store(digests + slot, _digest(_mixed(new_key)), mask=put)
            tl.store(keys + slot, new_key, mask=put)
            tl.store(scores + slot, new_score, mask=put)
            tl.store(batches + slot, tl.full([_SLOTS], 0, tl.int64) + batch, mask=put)
            seen += _sum(is_new)
            at += chunk


@triton.jit(do_not_specialize=NUMBERS)
def free_slots(slots, groups, count: tl.int32, digests, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Free slots; -1 is none."""
    group = tl.program_id(0) * block + tl.arange(0, block)
    slot = tl.load(slots + group, mask=group < tl.load(groups + count - 1), other=-1)
    tl.store(digests + slot, tl.full([block], 0, tl.uint8), mask=slot >= 0)
    tl.atomic_add(size, -_sum(slot >= 0).to(tl.int64))


@triton.jit(do_not_specialize=NUMBERS)
def split_buckets(  # type: ignore[no-untyped-def]
    digests, keys, scores, batches, new_digests, new_keys, new_scores, new_batches, moved, buckets: tl.int64,
):  # fmt: skip
    """Move a bucket's keys to its two buckets in a table of twice the size; `moved` has their new slots, or -1."""
    lane = tl.arange(0, _SLOTS)
    slot = tl.program_id(0).to(tl.int64) * _SLOTS + lane
    digest = tl.load(digests + slot)
    key = tl.load(keys + slot)
    live = digest != 0
    bucket = tl.where(live, _bucket(_mixed(key), buckets), -1)
    earlier = (bucket[None, :] == bucket[:, None]) & (lane[None, :] < lane[:, None])
    rank = tl.reduce(earlier.to(tl.int32), 1, tl.standard._sum_combine)  # type: ignore[attr-defined]
    target = bucket * _SLOTS + rank
    tl.store(moved + slot, tl.where(live, target, -1))
    tl.store(new_digests + target, digest, mask=live)
    tl.store(new_keys + target, key, mask=live)
    tl.store(new_scores + target, tl.load(scores + slot), mask=live)
    tl.store(new_batches + target, tl.load(batches + slot), mask=live)


@triton.jit(do_not_specialize=NUMBERS)
def start_rows(  # type: ignore[no-untyped-def]
    rows_of, slots, fresh, keys, groups, newest, count: tl.int32, batch: tl.int64, seed: tl.int64, spread,
    width: tl.constexpr, dim: tl.constexpr, kind: tl.constexpr, parts: tl.constexpr, block: tl.constexpr,
    columns: tl.constexpr,
):  # fmt: skip
    """Write the first value of fresh keys' rows, and 0 as their state. `columns` covers the whole width."""
    number = tl.where(tl.load(newest) == batch, tl.load(groups + count - 1), 0)
    for part in range(parts):
        first = (tl.program_id(0) * parts + part) * block
        if first < number:
            group = first + tl.arange(0, block)
            live = group < number
            live = live & (tl.load(fresh + group, mask=live, other=0) > 0)
            slot = tl.load(slots + group, mask=live, other=-1)
            if _any(slot >= 0):
                column = tl.arange(0, columns)[None, :]
                scale = tl.load(spread)
                value = tl.full([block, columns], 0.0, tl.float64) + scale
                if kind != 2:
                    own = _mixed(tl.load(keys + group, mask=live, other=0))[:, None]
                    mixed = own ^ _mixed(seed.to(tl.int64) * 4294967296 + column.to(tl.int64))
                    mixed = _mixed(mixed.to(tl.int64, bitcast=True))
                    first_share = ((mixed >> 41) * 2 + 1).to(tl.float64) / 16777216.0
                    if kind == 0:
                        value = (first_share * 2.0 - 1.0) * scale
                    else:
                        second = ((mixed & 8388607) * 2 + 1).to(tl.float64) / 16777216.0
                        value = scale * tl.sqrt(-2.0 * tl.log(first_share)) * tl.cos(6.283185307179586 * second)
                value = tl.where(column < dim, value, 0.0).to(tl.float32)
                there = (slot >= 0)[:, None] & (column < width)
                tl.store(rows_of + slot[:, None] * width + column, value, mask=there)
