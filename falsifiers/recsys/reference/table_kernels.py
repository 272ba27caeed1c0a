"""Triton kernels of the dynamic embedding table.

A slot has a digest of 8 bits (0: the slot is free), a key, a score, and the number of the last batch that asked for it.
No key means "free", so every int64 is a key. A lookup reads the 128 digests of a bucket, and keys where the digest is
equal.

No kernel waits for another program. Equal keys are joined before an insertion, and one program owns a bucket, so
results repeat bit by bit. Only the frequencies are added atomically; they are integers.

`near` has the rows on the device. If `tiered`, `far` has rows in the host's memory: place p >= 0 is row p of `near`,
p < 0 is row -1 - p of `far`, and NOWHERE is no row.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["NOWHERE", "NUMBERS"]

NOWHERE = -(1 << 62)
_NOWHERE = tl.constexpr(NOWHERE)
_SLOTS = tl.constexpr(128)
NUMBERS = ["count", "buckets", "given", "batch", "seed"]
"""Arguments for whose value no kernel is compiled anew."""


@triton.jit
def _mixed(key):  # type: ignore[no-untyped-def]
    """Return the 64-bit finaliser of MurmurHash3, as uint64."""
    mixed = key.to(tl.uint64, bitcast=True)
    mixed = (mixed ^ (mixed >> 33)) * 0xFF51AFD7ED558CCD
    mixed = (mixed ^ (mixed >> 33)) * 0xC4CEB9FE1A85EC53
    return mixed ^ (mixed >> 33)


@triton.jit
def _digest(mixed):  # type: ignore[no-untyped-def]
    """Return 8 bits of a hash that say nothing of its bucket, and are not 0."""
    return tl.maximum((mixed >> 56).to(tl.int32), 1).to(tl.uint8)


@triton.jit
def _bucket(mixed, buckets):  # type: ignore[no-untyped-def]
    return (mixed & (buckets - 1).to(tl.uint64)).to(tl.int64)


@triton.jit(do_not_specialize=NUMBERS)
def hashes(keys, count, out, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the hash of each key."""
    item = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    live = item < count
    mixed = _mixed(tl.load(keys + item, mask=live, other=0))
    tl.store(out + item, mixed.to(tl.int64, bitcast=True), mask=live)


@triton.jit(do_not_specialize=NUMBERS)
def find(  # type: ignore[no-untyped-def]
    keys, count, slots, digests, table_keys, scores, batches, buckets, given, batch, weights,
    touch: tl.constexpr, counted: tl.constexpr, weighted: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Write the slot of each key, or -1. With `touch`, note the batch, and set the score or count the occurrences."""
    item = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    live = item < count
    key = tl.load(keys + item, mask=live, other=0)
    mixed = _mixed(key)
    place = (_bucket(mixed, buckets) * _SLOTS)[:, None] + tl.arange(0, _SLOTS)[None, :]
    alike = tl.load(digests + place, mask=live[:, None], other=0) == _digest(mixed)[:, None]
    alike = alike & (tl.load(table_keys + place, mask=alike, other=0) == key[:, None])
    slot = tl.reduce(tl.where(alike, place, -1), 1, tl.standard._elementwise_max)  # type: ignore[attr-defined]
    tl.store(slots + item, slot, mask=live)
    if touch:
        there = live & (slot >= 0)
        tl.store(batches + slot, tl.full([block], 0, tl.int64) + batch, mask=there)
        if counted:
            by = tl.full([block], 1, tl.int64)
            if weighted:
                by = tl.load(weights + item, mask=live, other=0)
            tl.atomic_add(scores + slot, by, mask=there)
        else:
            tl.store(scores + slot, tl.full([block], 0, tl.int64) + given, mask=there)


@triton.jit(do_not_specialize=NUMBERS)
def insert(  # type: ignore[no-untyped-def]
    which, starts, counts, new_keys, new_scores, slots, evicted, evicted_keys, digests, keys, scores, batches, batch,
):  # fmt: skip
    """Give the new keys of a bucket free slots, then those of the lowest scores; slots stays -1 where none is left.

    A bucket's new keys are a stretch of `new_keys`. The k-th of them gets the slot that is k-th in this order: free
    ones, then those that this batch did not ask for, by score and key.
    """
    program = tl.program_id(0)
    bucket = tl.load(which + program)
    start = tl.load(starts + program)
    number = tl.load(counts + program)
    lane = tl.arange(0, _SLOTS)
    slot = bucket * _SLOTS + lane
    free = tl.load(digests + slot) == 0
    kept = tl.load(batches + slot) == batch
    kind = tl.where(free, 0, tl.where(kept, 2, 1))
    key = tl.where(free, lane.to(tl.int64), tl.load(keys + slot))
    score = tl.where(free, 0, tl.load(scores + slot))
    lower_key = key[None, :] < key[:, None]
    lower_score = (score[None, :] < score[:, None]) | ((score[None, :] == score[:, None]) & lower_key)
    before = (kind[None, :] < kind[:, None]) | ((kind[None, :] == kind[:, None]) & lower_score)
    rank = tl.reduce(before.to(tl.int32), 1, tl.standard._sum_combine)  # type: ignore[attr-defined]
    taken = (kind < 2) & (rank < number)
    new = start + rank
    new_key = tl.load(new_keys + new, mask=taken, other=0)
    tl.store(slots + new, slot, mask=taken)
    tl.store(evicted + new, (kind == 1).to(tl.int8), mask=taken)
    tl.store(evicted_keys + new, key, mask=taken)
    tl.store(digests + slot, _digest(_mixed(new_key)), mask=taken)
    tl.store(keys + slot, new_key, mask=taken)
    tl.store(scores + slot, tl.load(new_scores + new, mask=taken, other=0), mask=taken)
    tl.store(batches + slot, tl.full([_SLOTS], 0, tl.int64) + batch, mask=taken)


@triton.jit(do_not_specialize=NUMBERS)
def split(  # type: ignore[no-untyped-def]
    digests, keys, scores, batches, new_digests, new_keys, new_scores, new_batches, moved, buckets,
):  # fmt: skip
    """Move a bucket's keys to the two that it becomes in a table of twice as many; moved has their new slots, or -1."""
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


@triton.jit
def _read(near, far, place, column, there, width, tiered: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the numbers of rows at their places."""
    row = place[:, None]
    numbers = tl.load(near + row * width + column, mask=there & (row >= 0), other=0.0)
    if tiered:
        numbers += tl.load(far + (-1 - row) * width + column, mask=there & (row < 0), other=0.0)
    return numbers


@triton.jit
def _write(near, far, place, column, there, width, numbers, tiered: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store the numbers of rows at their places."""
    row = place[:, None]
    tl.store(near + row * width + column, numbers, mask=there & (row >= 0))
    if tiered:
        tl.store(far + (-1 - row) * width + column, numbers, mask=there & (row < 0))


@triton.jit(do_not_specialize=NUMBERS)
def copy_rows(  # type: ignore[no-untyped-def]
    near, far, places, other, at, count, width: tl.constexpr, dim: tl.constexpr, stride: tl.constexpr,
    out: tl.constexpr, listed: tl.constexpr, tiered: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Copy the first `dim` numbers of rows to rows `at` of `other`, or from there if not `out`; nowhere's are 0."""
    item = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    column = tl.arange(0, columns)[None, :]
    live = item < count
    place = tl.load(places + item, mask=live, other=_NOWHERE)
    row = item
    if listed:
        row = tl.load(at + item, mask=live, other=0)
    theirs = other + row[:, None] * stride + column
    whole = live[:, None] & (column < dim)
    there = whole & (place != _NOWHERE)[:, None]
    if out:
        tl.store(theirs, _read(near, far, place, column, there, width, tiered), mask=whole)
    else:
        _write(near, far, place, column, there, width, tl.load(theirs, mask=there, other=0.0), tiered)


@triton.jit(do_not_specialize=NUMBERS)
def start_rows(  # type: ignore[no-untyped-def]
    near, far, places, keys, count, seed, spread, width: tl.constexpr, dim: tl.constexpr, kind: tl.constexpr,
    tiered: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Write the first value of rows, and 0 as their state. `columns` covers the whole width."""
    item = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    column = tl.arange(0, columns)[None, :]
    live = item < count
    place = tl.load(places + item, mask=live, other=_NOWHERE)
    there = (live & (place != _NOWHERE))[:, None] & (column < width)
    scale = tl.load(spread)
    value = tl.full([block, columns], 0.0, tl.float64) + scale
    if kind != 2:
        own = _mixed(tl.load(keys + item, mask=live, other=0))[:, None]
        mixed = own ^ _mixed(seed.to(tl.int64) * 4294967296 + column.to(tl.int64))
        mixed = _mixed(mixed.to(tl.int64, bitcast=True))
        first = ((mixed >> 41) * 2 + 1).to(tl.float64) / 16777216.0
        if kind == 0:
            value = (first * 2.0 - 1.0) * scale
        else:
            second = ((mixed & 8388607) * 2 + 1).to(tl.float64) / 16777216.0
            value = scale * tl.sqrt(-2.0 * tl.log(first)) * tl.cos(6.283185307179586 * second)
    _write(near, far, place, column, there, width, tl.where(column < dim, value, 0.0).to(tl.float32), tiered)


@triton.jit
def _sum(  # type: ignore[no-untyped-def]
    source, order, start, number, column, dim, longest: tl.constexpr, ordered: tl.constexpr, block: tl.constexpr,
    columns: tl.constexpr,
):  # fmt: skip
    """Return the sums of runs of rows, in order. longest is 0 for what the block's longest run has."""
    total = tl.full([block, columns], 0.0, tl.float32)
    for one in range(longest if longest > 0 else tl.reduce(number, 0, tl.standard._elementwise_max)):  # type: ignore[attr-defined]
        more = one < number
        row = start + one
        if ordered:
            row = tl.load(order + row, mask=more, other=0)
        total += tl.load(source + row[:, None] * dim + column, mask=more[:, None] & (column < dim), other=0.0)
    return total


@triton.jit(do_not_specialize=NUMBERS)
def sum_runs(  # type: ignore[no-untyped-def]
    source, order, starts, counts, out, count, dim: tl.constexpr, ordered: tl.constexpr, longest: tl.constexpr,
    block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Write the sum of each run of rows of `source`, or of rows that a run of `order` names."""
    item = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    column = tl.arange(0, columns)[None, :]
    live = item < count
    start = tl.load(starts + item, mask=live, other=0)
    number = tl.load(counts + item, mask=live, other=0)
    total = _sum(source, order, start, number, column, dim, longest, ordered, block, columns)
    tl.store(out + item[:, None] * dim + column, total, mask=live[:, None] & (column < dim))


@triton.jit(do_not_specialize=NUMBERS)
def step(  # type: ignore[no-untyped-def]
    near, far, places, source, order, starts, counts, pieces, piece_starts, piece_counts, count,
    rate, eps, of_m, of_v, width: tl.constexpr, dim: tl.constexpr, rule: tl.constexpr, tiered: tl.constexpr,
    longest: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of each place and update its row. A long run is given as few sums in `pieces`.

    Args:
        of_m, of_v: what Adam's moments are multiplied by, for their short history.
        rule: 0 SGD, 1 Adagrad, 2 row-wise Adagrad, 3 Adam.
    """
    item = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    column = tl.arange(0, columns)[None, :]
    live = item < count
    place = tl.load(places + item, mask=live, other=_NOWHERE)
    live = live & (place != _NOWHERE)
    there = live[:, None] & (column < dim)
    slope = _sum(
        source, order, tl.load(starts + item, mask=live, other=0), tl.load(counts + item, mask=live, other=0),
        column, dim, longest, True, block, columns,
    )  # fmt: skip
    slope += _sum(
        pieces, order, tl.load(piece_starts + item, mask=live, other=0),
        tl.load(piece_counts + item, mask=live, other=0), column, dim, longest, False, block, columns,
    )  # fmt: skip
    row = _read(near, far, place, column, there, width, tiered)
    if rule == 0:
        row -= rate * slope
    if rule == 1:
        total = _read(near, far, place, column + dim, there, width, tiered) + slope * slope
        _write(near, far, place, column + dim, there, width, total, tiered)
        row -= rate * slope / (tl.sqrt(total) + eps)
    if rule == 2:
        mean = tl.reduce(slope * slope, 1, tl.standard._sum_combine) / dim  # type: ignore[attr-defined]
        first = tl.full([block, 1], 0, tl.int32) + dim
        one = live[:, None]
        total = _read(near, far, place, first, one, width, tiered) + mean[:, None]
        _write(near, far, place, first, one, width, total, tiered)
        row -= rate * slope / (tl.sqrt(total) + eps)
    if rule == 3:
        m = _read(near, far, place, column + dim, there, width, tiered) * 0.9 + slope * 0.1
        v = _read(near, far, place, column + 2 * dim, there, width, tiered) * 0.999 + slope * slope * 0.001
        _write(near, far, place, column + dim, there, width, m, tiered)
        _write(near, far, place, column + 2 * dim, there, width, v, tiered)
        row -= rate * (m * of_m) / (tl.sqrt(v * of_v) + eps)
    _write(near, far, place, column, there, width, row, tiered)
