"""Which rows of a sequence attend to which keys, for the kernels of HSTU attention, in Triton.

`valid` is the mask. `keys_of` and `rows_of` return the ranges of blocks for a program, and which blocks need no mask:

    low ... unmasked ... masked ... middle   again ... high
        mask    no mask         mask             mask

Blocks between `middle` and `again` are skipped. Both functions may include too much, because `valid` decides at the
end, but no block that needs a mask is between `unmasked` and `masked`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sequence(  # type: ignore[no-untyped-def]
    item, offsets, targets, contextuals, has_targets: tl.constexpr, has_contextuals: tl.constexpr
):
    """Return a sequence's first row, its length, the place of its first target, and the offset of ids from places."""
    start = tl.load(offsets + item)
    length = (tl.load(offsets + item + 1) - start).to(tl.int32)
    history = length
    if has_targets:
        history = length - tl.load(targets + item).to(tl.int32)
    shift = 0
    if has_contextuals:
        shift = tl.load(contextuals + item).to(tl.int32) - 1
    return start.to(tl.int64), length, history, shift


@triton.jit
def valid(  # type: ignore[no-untyped-def]
    rows, keys, history, shift, group, window, full,
    causal: tl.constexpr, has_targets: tl.constexpr, has_contextuals: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr,
):  # fmt: skip
    """Return whether rows attend to keys. Both are places in a sequence, of shapes that broadcast."""
    row_id = rows
    key_id = keys
    end = history - shift
    if has_contextuals:
        row_id = tl.maximum(rows - shift, 0)
        key_id = tl.maximum(keys - shift, 0)
    distance = row_id - key_id
    if not causal:
        distance = tl.abs(distance)
    if causal and not has_contextuals:  # noqa: SIM108 - Triton compiles one branch of a statement
        pairs = rows >= keys
    else:
        pairs = (rows == keys) | (distance > 0)
    if has_targets:
        row_target = row_id - end
        key_target = key_id - end
        same = tl.maximum(row_target, 0) // group == tl.maximum(key_target, 0) // group
        pairs = pairs & (same | (row_target < 0) | (key_target < 0))
    if has_window:
        near = distance <= window
        if has_full:
            near = near | (row_id >= end - full)
        pairs = pairs & near
    if has_contextuals:
        pairs = pairs | ((row_id == 0) & (key_id < end))
    return pairs


@triton.jit
def keys_of(  # type: ignore[no-untyped-def]
    first, size: tl.constexpr, length, history, shift, group, window, full,
    causal: tl.constexpr, has_targets: tl.constexpr, has_contextuals: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr,
):  # fmt: skip
    """Return low, unmasked, masked, middle, again and high of the keys that a block of rows attends to."""
    last = tl.minimum(first + size, length) - 1
    low = 0
    unmasked = 0
    high = length
    if causal:
        high = last + 1
        masked = tl.minimum(first, history)
        if has_window:
            low = tl.where(first - shift - window > 0, first - window, 0)
            unmasked = tl.where(last - shift - window > 0, last - window, 0)
            if has_full:
                low = tl.where(last >= history - full, 0, low)
                unmasked = tl.where(first >= history - full, 0, unmasked)
    else:
        masked = history
        if has_contextuals:
            masked = tl.where(history - shift > 0, masked, 0)
        if has_window:
            masked = 0
    middle = high
    again = high
    if has_targets and causal:
        group_start = history + tl.maximum(first - history, 0) // group * group
        middle = tl.where(first >= history, history, middle)
        again = tl.where(first >= history, group_start, again)
        low = tl.minimum(low, middle)
        unmasked = tl.minimum(unmasked, middle)
    if has_contextuals and causal:
        mixed = first <= shift
        low = tl.where(mixed, 0, low)
        unmasked = tl.where(mixed, 0, unmasked)
        masked = tl.where(mixed, 0, masked)
        middle = tl.where(mixed, tl.maximum(high, history), middle)
        again = tl.where(mixed, high, again)
    return low, unmasked, masked, middle, again, high


@triton.jit
def rows_of(  # type: ignore[no-untyped-def]
    first, size: tl.constexpr, length, history, shift, group, window, full,
    causal: tl.constexpr, has_targets: tl.constexpr, has_contextuals: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr,
):  # fmt: skip
    """Return ahead, low, unmasked, masked, middle, again and high of the rows that attend to a block of keys.

    Rows below `ahead` are contextual ones, which attend to later keys. They need the mask.
    """
    last = tl.minimum(first + size, length) - 1
    ahead = 0
    low = 0
    unmasked = 0
    high = length
    masked = length
    middle = length
    again = length
    if causal:
        low = first
        unmasked = first + size
        if has_contextuals:
            unmasked = tl.maximum(unmasked, shift + 1)
        if has_targets:
            group_end = history + (tl.maximum(last - history, 0) // group + 1) * group
            high = tl.where(first >= history, tl.minimum(high, group_end), high)
            masked = tl.where(last >= history, 0, masked)
        middle = high
        if has_window:
            reach = window + shift + 1
            middle = tl.minimum(middle, tl.maximum(last - shift, 0) + reach)
            masked = tl.minimum(masked, tl.maximum(first - shift, 0) + reach)
            if has_full:
                again = tl.maximum(middle, history - full)
        if has_contextuals:
            ahead = tl.where(first < history, tl.minimum(shift + 1, first), 0)
            low = tl.where(first <= shift, 0, low)
            ahead = tl.where(first <= shift, 0, tl.maximum(ahead, 0))
            middle = tl.where(first <= shift, tl.maximum(middle, tl.minimum(shift + 1, length)), middle)
            again = tl.maximum(again, middle)
            high = tl.maximum(high, middle)
    else:
        masked = tl.where(last < history, masked, 0)
        if has_contextuals:
            masked = tl.where(history - shift > 0, masked, 0)
        if has_window:
            masked = 0
    return ahead, low, unmasked, masked, middle, again, high
