"""Triton kernels that read and write rows of the dynamic embedding table, and sum their gradients.

Groups are those of `table_kernels`. `near` has the rows on the device. If `tiered`, `far` has rows in the host's
memory. Place p >= 0 is row p of `near`, -1 is no row, and p < -1 is row -2 - p of `far`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from falsifiers.recsys.reference.table_kernels import NUMBERS


@triton.jit
def _read(near, far, place, column, there, width, tiered: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the numbers of rows at their places."""
    row = place[:, None]
    numbers = tl.load(near + row * width + column, mask=there & (row >= 0), other=0.0)
    if tiered:
        numbers += tl.load(far + (-2 - row) * width + column, mask=there & (row < -1), other=0.0)
    return numbers


@triton.jit
def _write(near, far, place, column, there, width, numbers, tiered: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store the numbers of rows at their places."""
    row = place[:, None]
    tl.store(near + row * width + column, numbers, mask=there & (row >= 0))
    if tiered:
        tl.store(far + (-2 - row) * width + column, numbers, mask=there & (row < -1))


@triton.jit(do_not_specialize=NUMBERS)
def copy_rows(  # type: ignore[no-untyped-def]
    near, far, places, groups, other, at, count: tl.int32, width: tl.constexpr, dim: tl.constexpr,
    stride: tl.constexpr, out: tl.constexpr, grouped: tl.constexpr, listed: tl.constexpr, tiered: tl.constexpr,
    block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Copy the first `dim` numbers of rows to rows of `other`, or from there if not `out`.

    If `listed`, `at` has the rows of `other`, and nothing is copied if a place or row is -1. Else rows are in order,
    and the row of no place is 0.
    """
    number = count
    if grouped:
        number = tl.load(groups + count - 1)
    if tl.program_id(0) * block < number:
        item = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        column = tl.arange(0, columns)[None, :]
        live = item < number
        place = tl.load(places + item, mask=live, other=-1)
        row = item
        if listed:
            row = tl.load(at + item, mask=live, other=-1)
            live = live & (row >= 0) & (place != -1)
        theirs = other + row[:, None] * stride + column
        whole = live[:, None] & (column < dim)
        there = whole & (place != -1)[:, None]
        if out:
            tl.store(theirs, _read(near, far, place, column, there, width, tiered), mask=whole)
        else:
            _write(near, far, place, column, there, width, tl.load(theirs, mask=there, other=0.0), tiered)


@triton.jit(do_not_specialize=NUMBERS)
def spread_rows(  # type: ignore[no-untyped-def]
    near, far, places, groups, items, out, count: tl.int32, width: tl.constexpr, dim: tl.constexpr,
    tiered: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Copy each group's row to the items of the group; the row of no place is 0."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    column = tl.arange(0, columns)[None, :]
    live = at < count
    place = tl.load(places + tl.load(groups + at, mask=live, other=1) - 1, mask=live, other=-1)
    item = tl.load(items + at, mask=live, other=0)
    whole = live[:, None] & (column < dim)
    numbers = _read(near, far, place, column, whole & (place != -1)[:, None], width, tiered)
    tl.store(out + item[:, None] * dim + column, numbers, mask=whole)


@triton.jit(do_not_specialize=NUMBERS)
def sum_pieces(  # type: ignore[no-untyped-def]
    source, items, owners, starts, count: tl.int32, scale: tl.int32, first: tl.int32, base: tl.int32, out, out_owners,
    dim: tl.constexpr, ordered: tl.constexpr, piece: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Sum pieces of long runs of rows of `source`, or of its rows `items`.

    The rows of a group are adjacent: its item indices divided by `scale`, rounded down, from its start divided by
    `scale` on. A run of at least `piece` rows is divided into pieces of that size; the last one includes the remainder.
    So no two pieces begin in the same window of `piece` rows, and the sum of window w is row base + w of `out`. It
    belongs to the same group as the run of the next scale.

    Args:
        owners: the group of each row, from 1; 0 for none.
        count: the number of rows, from row `first` of `source` and `owners` on.
    """
    window = tl.program_id(0)
    row = window * piece + tl.arange(0, piece)
    owner = tl.load(owners + first + row, mask=row < count, other=0)
    owned = owner > 0
    start = tl.load(starts + owner - 1, mask=owned, other=0)
    number = (tl.load(starts + owner, mask=owned, other=0) - start) // scale
    done = row - start // scale
    whole = number // piece * piece
    begins = owned & (done < whole) & (done % piece == 0)
    length = tl.where(done + piece == whole, number - done, piece)
    tl.store(out_owners + base + window, tl.reduce(tl.where(begins, owner, 0), 0, tl.standard._elementwise_max))  # type: ignore[attr-defined]
    length = tl.reduce(tl.where(begins, length, 0), 0, tl.standard._elementwise_max)  # type: ignore[attr-defined]
    if length > 0:
        at_first = first + tl.reduce(tl.where(begins, row, 0), 0, tl.standard._elementwise_max)  # type: ignore[attr-defined]
        column = tl.arange(0, columns)[None, :]
        total = tl.full([block, columns], 0.0, tl.float32)
        for part in range(2 * piece // block):
            offset = part * block + tl.arange(0, block)
            there = offset < length
            at = (at_first + offset).to(tl.int64)
            if ordered:
                at = tl.load(items + at, mask=there, other=0)
            total += tl.load(source + at[:, None] * dim + column, mask=there[:, None] & (column < dim), other=0.0)
        total = tl.reduce(total, 0, tl.standard._sum_combine)  # type: ignore[attr-defined]
        of = out + (base + window).to(tl.int64) * dim + tl.arange(0, columns)
        tl.store(of, total, mask=tl.arange(0, columns) < dim)


@triton.jit
def _total(  # type: ignore[no-untyped-def]
    source, items, start, number, column, dim, ordered: tl.constexpr, at_once: tl.constexpr, block: tl.constexpr,
    columns: tl.constexpr,
):  # fmt: skip
    """Return the sums of runs of rows, in order."""
    total = tl.full([block, columns], 0.0, tl.float32)
    longest = tl.reduce(number, 0, tl.standard._elementwise_max)  # type: ignore[attr-defined]
    done = tl.full([], 0, tl.int32)
    while done < longest:
        for step in tl.static_range(at_once):
            more = done + step < number
            row = (start + done + step).to(tl.int64)
            if ordered:
                row = tl.load(items + row, mask=more, other=0)
            total += tl.load(source + row[:, None] * dim + column, mask=more[:, None] & (column < dim), other=0.0)
        done += at_once
    return total


@triton.jit(do_not_specialize=NUMBERS)
def update_rows(  # type: ignore[no-untyped-def]
    near, far, places, source, items, starts, groups, count: tl.int32, sums, rate, eps,
    m_correction, v_correction, programs: tl.int32,
    width: tl.constexpr, dim: tl.constexpr, rule: tl.constexpr, tiered: tl.constexpr, piece: tl.constexpr,
    levels: tl.constexpr, at_once: tl.constexpr, block: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of each group and update its row. For long runs, `sums` has the sums of pieces, by level.

    Args:
        m_correction, v_correction: Adam's bias corrections, as factors.
        rule: 0 SGD, 1 Adagrad, 2 row-wise Adagrad, 3 Adam; 4: only write the sum to row g of `near`.
    """
    number = tl.load(groups + count - 1)
    first = tl.program_id(0) * block
    while first < number:
        group = first + tl.arange(0, block)
        column = tl.arange(0, columns)[None, :]
        live = group < number
        place = group.to(tl.int64)
        if rule != 4:
            place = tl.load(places + group, mask=live, other=-1)
            live = live & (place != -1)
        there = live[:, None] & (column < dim)
        start = tl.load(starts + group, mask=live, other=0)
        size = tl.load(starts + group + 1, mask=live, other=0) - start
        long = size >= piece
        slope = _total(source, items, start, tl.where(long, 0, size), column, dim, True, at_once, block, columns)
        if levels > 0:
            base = tl.full([block], 0, tl.int32)
            rows = (count + piece - 1) // piece
            start = start // piece
            size = size // piece
            for _ in tl.static_range(levels - 1):
                deeper = size >= piece
                base = tl.where(deeper, base + rows, base)
                start = tl.where(deeper, start // piece, start)
                size = tl.where(deeper, size // piece, size)
                rows = (rows + piece - 1) // piece
            slope += _total(
                sums, items, base + start, tl.where(long, size, 0), column, dim, False, 2 * at_once, block, columns
            )
        if rule == 4:
            tl.store(near + place[:, None] * dim + column, slope, mask=there)
        else:
            row = _read(near, far, place, column, there, width, tiered)
            if rule == 0:
                row -= rate * slope
            if rule == 1:
                total = _read(near, far, place, column + dim, there, width, tiered) + slope * slope
                _write(near, far, place, column + dim, there, width, total, tiered)
                row -= rate * slope / (tl.sqrt(total) + eps)
            if rule == 2:
                mean = tl.reduce(slope * slope, 1, tl.standard._sum_combine) / dim  # type: ignore[attr-defined]
                own = tl.full([block, 1], 0, tl.int32) + dim
                live_rows = live[:, None]
                total = _read(near, far, place, own, live_rows, width, tiered) + mean[:, None]
                _write(near, far, place, own, live_rows, width, total, tiered)
                row -= rate * slope / (tl.sqrt(total) + eps)
            if rule == 3:
                m = _read(near, far, place, column + dim, there, width, tiered) * 0.9 + slope * 0.1
                v = _read(near, far, place, column + 2 * dim, there, width, tiered) * 0.999 + slope * slope * 0.001
                _write(near, far, place, column + dim, there, width, m, tiered)
                _write(near, far, place, column + 2 * dim, there, width, v, tiered)
                row -= rate * (m * m_correction) / (tl.sqrt(v * v_correction) + eps)
            _write(near, far, place, column, there, width, row, tiered)
        first += programs * block
