"""The Triton kernels of `counted_products`: the order of the rows, a matrix product, and the final step of a row.

The product kernel has one program per multiprocessor. The programs share the tiles of the result, and the inner loop of
a tile continues into the next tile without a pause in the loads. If a result has fewer tiles than programs, its inner
dimension is split, and the parts are added in a fixed order, so equal inputs give equal results.
"""

from __future__ import annotations

import triton.language as tl

from falsifiers.nanochat.reference.kernel import Kernel

_maximum = tl.standard._elementwise_max  # type: ignore[attr-defined]
_sum = tl.standard._sum_combine  # type: ignore[attr-defined]
_LOG2E = tl.constexpr(1.4426950408889634)
_TOO_LARGE = tl.constexpr(2.0**80)
"""If a tile's sum of exponentials exceeds this, which is 55 as a logarithm, the product is repeated."""
_BETWEEN = tl.constexpr(4)
"""Steps along the inner dimension that take as long as ending a tile and beginning another."""
_FAR = tl.constexpr(40.0)
"""Rows whose largest logit exceeds the reference by this take it as their new reference. A tile with a sum that is too
large has such a row, because it has less than e^15 columns.
"""


def _order(targets, order, numbers, rows, ignored, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the rows that count, in order, then the others from the end backwards; and how many count."""
    counted = 0
    for start in range(0, rows, block):
        step = tl.arange(0, block)
        there = start + step < rows
        ones = (there & (tl.load(targets + start + step, mask=there, other=ignored) != ignored)).to(tl.int32)
        until = tl.associative_scan(ones, 0, _sum)
        others = start - counted + step - until
        place = tl.where(ones == 1, counted + until - 1, rows - 1 - others)
        tl.store(order + place, start + step, mask=there)
        counted += tl.reduce(ones, 0, _sum)
    tl.store(numbers, counted)


def _gather(  # type: ignore[no-untyped-def]
    hidden, weight, targets, order, numbers, gathered, of_rows, first, rows, chunk, padded, width, vocabulary, softcap,
    capped: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Copy a row's hidden state to its place in the chunk, and write its target's logit; zeros if it does not count."""
    row = tl.program_id(0)
    counts = (first + row < tl.load(numbers)) & (row < chunk)
    place = tl.load(order + first + row, mask=first + row < rows, other=0).to(tl.int64)
    target = tl.load(targets + place)
    columns = tl.arange(0, block)
    state = tl.load(hidden + place * width + columns, mask=counts & (columns < width), other=0.0)
    tl.store(gathered + row.to(tl.int64) * width + columns, state, mask=(columns < width) & (row < chunk))
    mine = counts & (target >= 0) & (target < vocabulary)
    other = tl.load(weight + target * width + columns, mask=mine & (columns < width), other=0.0)
    value = tl.reduce(state.to(tl.float32) * other.to(tl.float32), 0, _sum)
    if capped:
        small = tl.exp(-2.0 * tl.abs(value) / softcap)
        tl.store(of_rows + padded + row, 4.0 * small / ((1.0 + small) * (1.0 + small)))
        value = tl.where(value < 0.0, -softcap, softcap) * (1.0 - small) / (1.0 + small)
    tl.store(of_rows + row, value)


def _product(  # type: ignore[no-untyped-def]
    left, right, result, of_rows, statistics, numbers, number, first, rows, columns, inner, slots, padded, softcap,
    tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr, left_turned: tl.constexpr, right_turned: tl.constexpr,
    limits_rows: tl.constexpr, add: tl.constexpr, split: tl.constexpr, exponentials: tl.constexpr,
    again: tl.constexpr, capped: tl.constexpr, ragged: tl.constexpr, programs: tl.constexpr,
    interpreted: tl.constexpr,
):  # fmt: skip
    """result (+)= left @ right, or its exponentials. Elements outside a tensor are loaded as zeros and not stored.

    With `split`, part s of the inner dimension is written to the rows from s times the rows of all tiles on.
    """
    group: tl.constexpr = 8
    there = tl.maximum(tl.load(numbers) - first, 0)
    high = (rows + tall - 1) // tall
    steps = (inner + deep - 1) // deep
    if limits_rows:
        high = (tl.minimum(rows, there) + tall - 1) // tall
    else:
        steps = (tl.minimum(inner, there) + deep - 1) // deep
        if add:
            high = tl.where(steps > 0, high, 0)
    if again:
        high = tl.where(tl.load(numbers + number) > 0, high, 0)
    across = (columns + wide - 1) // wide
    tiles = high * across
    begin_step = 0
    begin_tile = tl.program_id(0)
    stride = programs
    part = 0
    if split and tiles <= programs:  # `parts` programs have a tile each; those left share the last steps of all tiles
        tile_count = tl.maximum(tiles, 1)
        parts = tl.maximum(tl.minimum(programs // tile_count, slots // tile_count - 1), 1)
        rest = programs - parts * tile_count
        last = 0
        if rest > 0:
            turns = (tile_count + rest - 1) // rest * parts
            last = tl.maximum(steps - turns * _BETWEEN, 0) // (1 + turns)
        if begin_tile >= parts * tile_count:
            begin_tile -= parts * tile_count
            part = parts
            stride = rest
            begin_step = steps - last
            steps = last
        else:
            each = (steps - last + parts - 1) // parts
            part = begin_tile // tile_count
            begin_tile = begin_tile % tile_count
            begin_step = part * each
            steps = tl.minimum(each, steps - last - begin_step)
    for tile in tl.range(begin_tile, tiles, stride, flatten=not interpreted):
        line = tile // (group * across) * group
        height = tl.minimum(high - line, group)
        row = (line + (tile % (group * across)) % height) * tall
        column = (tile % (group * across)) // height * wide
        sums = tl.full((tall, wide), 0.0, tl.float32)
        lines = row + tl.arange(0, tall)
        if exponentials:
            reference = tl.load(of_rows + lines)
        for step in range(steps):
            at = (begin_step + step) * deep
            left_block = left.load([at, row]).T if left_turned else left.load([row, at])
            right_block = right.load([column, at]).T if right_turned else right.load([at, column])
            sums = tl.dot(left_block, right_block, sums)
        lower, upper = tl.split(tl.permute(tl.reshape(sums, (tall, 2, wide // 2)), (0, 2, 1)))
        place = row + part * high * tall
        if exponentials:
            maxima = statistics + across * padded + lines
            largest = tl.full((tall,), float("-inf"), tl.float32)
            total = tl.full((tall,), 0.0, tl.float32)
            if again:
                for other_tile in range(across):
                    largest = tl.maximum(largest, tl.load(maxima + other_tile * padded))
                reference = tl.where(largest - reference > _FAR, largest, reference)
        for half in tl.static_range(2):  # each needs its own registers
            values = lower if half == 0 else upper
            begin = column + half * (wide // 2)
            if exponentials:
                slope = 1.0
                if capped:
                    small = tl.exp(-2.0 * tl.abs(values) / softcap)
                    slope = 4.0 * small / ((1.0 + small) * (1.0 + small))  # 1 - tanh^2, exact where tanh is near 1
                    values = tl.where(values < 0.0, -softcap, softcap) * (1.0 - small) / (1.0 + small)
                if ragged:
                    values = tl.where((begin + tl.arange(0, wide // 2) < columns)[None, :], values, float("-inf"))
                if not again:
                    largest = tl.maximum(largest, tl.reduce(values, 1, _maximum))
                values = tl.exp2((values - reference[:, None]) * _LOG2E)
                total += tl.reduce(values, 1, _sum)
                values *= slope
            if add and not interpreted:  # memory adds the numbers while the program continues
                result.atomic_add([place, begin], values.to(result.dtype))
            else:
                if add:
                    values += result.load([place, begin]).to(tl.float32)
                result.store([place, begin], values.to(result.dtype))
        if exponentials:
            tl.store(statistics + column // wide * padded + lines, total)
            if not again:
                tl.store(maxima + column // wide * padded, largest)
                tl.store(numbers + number + lines * 0, 1, mask=total > _TOO_LARGE)


def _finish(  # type: ignore[no-untyped-def]
    exponentials, gathered, of_rows, statistics, parts, weight, targets, scales, sum_of_weight, losses, result, order,
    numbers, number, first, rows, chunk, padded, width, vocabulary, row_stride, column_tiles, slots, z_loss, smoothing,
    scaled: tl.constexpr, mean: tl.constexpr, write: tl.constexpr, spread: tl.constexpr,
    capped: tl.constexpr, smoothed: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr, programs: tl.constexpr,
    block: tl.constexpr, across: tl.constexpr,
):  # fmt: skip
    """Write a row's loss, its hidden state's gradient, the element of its target, and its hidden state divided by Z.

    The product used the target's exponential without the -Z. The missing part is added in float32.
    """
    row = tl.program_id(0)
    there = first + row < rows
    counted = tl.maximum(tl.load(numbers) - first, 0)
    counts = row < counted
    place = tl.load(order + first + row, mask=there, other=0).to(tl.int64)
    target = tl.load(targets + place)
    mine = counts & (target >= 0) & (target < vocabulary)
    value = tl.load(of_rows + row)
    tile = tl.arange(0, across)
    within = counts & (tile < column_tiles)
    total = tl.reduce(tl.load(statistics + tile * padded + row, mask=within, other=0.0), 0, _sum)
    total = tl.where(counts, total, 1.0)
    reference = value
    if tl.load(numbers + number) > 0:
        maxima = statistics + (column_tiles + tile) * padded + row
        largest = tl.reduce(tl.load(maxima, mask=within, other=float("-inf")), 0, _maximum)
        reference = tl.where(largest - value > _FAR, largest, value)
    log_sum = reference + tl.log(total)
    columns = tl.arange(0, block)
    inside = columns < width
    at = gathered + row.to(tl.int64) * width + columns
    state = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    loss = log_sum - value + z_loss * log_sum * log_sum
    if smoothed:
        of_all_logits = tl.load(sum_of_weight + columns, mask=inside, other=0.0)
        loss += smoothing * (value - tl.reduce(state * of_all_logits, 0, _sum) / vocabulary)
    loss = tl.where(mine, loss, float("nan"))
    scale = tl.load(scales + place) if scaled else 1.0
    if mean:
        scale /= tl.maximum(tl.load(numbers), 1).to(tl.float32)
    tl.store(losses + place, tl.where(counts, loss * scale, 0.0), mask=there)
    if write:
        tilt = 1.0 + 2.0 * z_loss * log_sum
        by = tl.where(counts, scale * tilt / total, 0.0)
        of_target = tl.exp2((value - reference) * _LOG2E) - (1.0 - smoothing) * total / tilt
        if capped:
            of_target *= tl.load(of_rows + padded + row)
        element = exponentials + row.to(tl.int64) * row_stride + target
        if spread:
            high = (tl.minimum(chunk, counted) + tall - 1) // tall
            of_all = tl.maximum(high * ((width + wide - 1) // wide), 1)
            count = tl.maximum(tl.minimum(programs // of_all, slots // of_all - 1), 1)
            if programs > count * of_all:
                count += 1
            lacks = of_target - tl.load(element, mask=mine, other=0.0).to(tl.float32)
            sums = tl.load(weight + target * width + columns, mask=mine & inside, other=0.0).to(tl.float32) * lacks
            for part in range(count):
                of_part = parts + (part * high * tall + row).to(tl.int64) * width + columns
                sums += tl.load(of_part, mask=counts & inside, other=0.0)
            sums *= by
            if smoothed:
                sums -= tl.where(counts, smoothing / vocabulary * scale, 0.0) * of_all_logits
            tl.store(result + place * width + columns, sums.to(result.dtype.element_ty), mask=inside & there)
            tl.debug_barrier()  # every warp has read the target's element
        tl.store(element, of_target.to(exponentials.dtype.element_ty), mask=mine)
        tl.store(at, (state * by).to(gathered.dtype.element_ty), mask=inside)


ORDER = Kernel(_order, varying=("rows", "ignored"))
GATHER = Kernel(_gather, varying=("first", "rows", "chunk", "vocabulary"))
PRODUCT = Kernel(_product, varying=("number", "first", "rows", "columns", "inner", "slots"))
FINISH = Kernel(
    _finish, varying=("number", "first", "rows", "chunk", "vocabulary", "row_stride", "column_tiles", "slots")
)
