"""Triton kernels of HSTU attention: `over_keys` makes the output or the gradient of q, `over_rows` those of k and v.

A program has one block of rows and sweeps the keys, or one block of keys and sweeps the rows. No two programs write to
one place, so results repeat bit by bit. A sweep has two loops: blocks that need no mask come first and are loaded by
TMA, then up to four stretches of blocks with a mask. `_valid` is the mask.

The scores need no maximum, since silu is no softmax. With `fast` the sigmoid is one tanh.approx of half the score.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["over_keys", "over_rows"]

PLAIN = ["context", "group", "window", "full", "heads", "batch", "blocks", "together"]
"""Numbers for whose value no kernel is compiled anew."""

APART, BRANCH, EVERYWHERE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""Where the blocks with a mask are: in a loop of their own, or in that of the others, which masks them in a branch or
masks all blocks. Only a causal mask and no other can be there: a branch with more of them stops the tensor cores."""
NOTHING = tl.constexpr(-64.0)
"""Half of a score for which silu and its slope are 0."""


@triton.jit
def _sequence(  # type: ignore[no-untyped-def]
    item, offsets, targets, contextuals, context, has_targets: tl.constexpr, context_kind: tl.constexpr
):  # fmt: skip
    """Return a sequence's first row, its length, the place of its first target, and how far ids lag behind places."""
    start = tl.load(offsets + item)
    length = (tl.load(offsets + item + 1) - start).to(tl.int32)
    history = length
    if has_targets:
        history = length - tl.load(targets + item).to(tl.int32)
    shift = 0
    if context_kind == 1:
        shift = context - 1
    if context_kind == 2:
        shift = tl.load(contextuals + item).to(tl.int32) - 1
    return start.to(tl.int64), length, history, shift


@triton.jit
def _place(heads, batch, blocks, together):  # type: ignore[no-untyped-def]
    """Return which head of the batch a program has, and which block of it.

    Programs of `together` heads take turns, so that blocks of equal places start side by side.
    """
    program = tl.program_id(0)
    group = program // (together * blocks)
    inside = program - group * (together * blocks)
    size = tl.minimum(together, heads * batch - group * together)
    return group * together + inside % size, inside // size


@triton.jit
def _longest_first(place, offsets, batch, pad: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the number of the sequence that is at a place in order of length. pad is 0 to keep their order."""
    if pad == 0:
        item = place
    else:
        one = tl.arange(0, pad)
        there = one < batch
        lengths = tl.load(offsets + one + 1, mask=there, other=0) - tl.load(offsets + one, mask=there, other=1)
        mine = lengths[:, None]
        others = lengths[None, :]
        before = (others > mine) | ((others == mine) & (one[None, :] < one[:, None]))
        rank = tl.reduce(before.to(tl.int32), 1, tl.standard._sum_combine)  # type: ignore[attr-defined]
        item = tl.reduce(tl.where(rank == place, one, 0), 0, tl.standard._sum_combine)  # type: ignore[attr-defined]
    return item


@triton.jit
def _valid(  # type: ignore[no-untyped-def]
    rows, keys, history, shift, group, window, full,
    causal: tl.constexpr, has_targets: tl.constexpr, context_kind: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr,
):  # fmt: skip
    """Return whether rows attend to keys. Both are places in a sequence, of shapes that broadcast."""
    row_id = rows
    key_id = keys
    end = history - shift
    if context_kind != 0:
        row_id = tl.maximum(rows - shift, 0)
        key_id = tl.maximum(keys - shift, 0)
    distance = row_id - key_id
    if not causal:
        distance = tl.abs(distance)
    if causal and context_kind == 0:  # noqa: SIM108 - Triton compiles one branch of a statement
        valid = rows >= keys
    else:
        valid = (rows == keys) | (distance > 0)
    if has_targets:
        row_target = row_id - end
        key_target = key_id - end
        same = tl.maximum(row_target, 0) // group == tl.maximum(key_target, 0) // group
        valid = valid & (same | (row_target < 0) | (key_target < 0))
    if has_window:
        near = distance <= window
        if has_full:
            near = near | (row_id >= end - full)
        valid = valid & near
    if context_kind != 0:
        valid = valid | ((row_id == 0) & (key_id < end))
    return valid


@triton.jit
def _causal(half, rows, keys, at_edge, edges: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return scores without those of later keys, which only a block at the edge has."""
    if edges == EVERYWHERE:  # noqa: SIM114 - the compiler knows one of the conditions
        half = tl.where(rows >= keys, half, NOTHING)
    elif at_edge:
        half = tl.where(rows >= keys, half, NOTHING)
    return half


@triton.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _silu(half, fast: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return silu(2 half)."""
    if fast:  # noqa: SIM108 - Triton compiles one branch of a statement, and both of an expression
        silu = half * _tanh(half) + half
    else:
        silu = 2.0 * half / (1.0 + tl.exp2(half * -2.8853900817779268))
    return silu


@triton.jit
def _silu_and_slope(half, fast: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return silu(2 half) and twice its slope there."""
    if fast:
        tanh = _tanh(half)
        silu = half * tanh + half
        slope = half * (1.0 - tanh * tanh) + (tanh + 1.0)
    else:
        sigmoid = 1.0 / (1.0 + tl.exp2(half * -2.8853900817779268))
        silu = 2.0 * half * sigmoid
        slope = 2.0 * sigmoid * (1.0 + 2.0 * half * (1.0 - sigmoid))
    return silu, slope


@triton.jit
def _tile(at, first, row_stride, size: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the addresses [size, width] of rows of a head of a sequence."""
    rows = first + tl.arange(0, size)
    return at + rows.to(tl.int64)[:, None] * row_stride + tl.arange(0, width)[None, :]


@triton.jit
def _load(  # type: ignore[no-untyped-def]
    at, by_tma, first, row_stride, head, start, size: tl.constexpr, width: tl.constexpr, use_tma: tl.constexpr
):  # fmt: skip
    """Return rows that are all in the sequence."""
    if use_tma:
        tile = tl.reshape(by_tma.load([head.to(tl.int32), (start + first).to(tl.int32), 0]), (size, width))
    else:
        tile = tl.load(_tile(at, first, row_stride, size, width))
    return tile


@triton.jit
def _load_some(at, first, end, row_stride, size: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return rows; zeros from `end` on, so that nothing of the next sequence has an effect."""
    inside = first + tl.arange(0, size) < end
    return tl.load(_tile(at, first, row_stride, size, width), mask=inside[:, None], other=0.0)


@triton.jit
def _products(q, k, above, v, half_alpha, gradient: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return half of the scores, and the gradient of the weights: [rows of q, rows of k]."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    of_weights = scores
    if gradient:
        of_weights = tl.dot(above, tl.trans(v), input_precision="ieee")
    return scores * half_alpha, of_weights


@triton.jit
def _key_step(total, half, of_weights, k, v, gradient: tl.constexpr, fast: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add what a block of keys gives to the output, or to the gradient of q."""
    if gradient:
        _, slope = _silu_and_slope(half, fast)
        total = tl.dot((of_weights * slope).to(k.dtype), k, total, input_precision="ieee")
    else:
        total = tl.dot(_silu(half, fast).to(v.dtype), v, total, input_precision="ieee")
    return total


@triton.jit(do_not_specialize=PLAIN)
def over_keys(  # type: ignore[no-untyped-def]
    q, k, v, above, out, k_tma, v_tma, offsets, targets, contextuals,
    q_row, q_head, k_row, k_head, v_row, v_head, above_row, above_head, out_row, out_head,
    half_alpha, scale, context, group, window, full, heads, batch, blocks, together,
    causal: tl.constexpr, has_targets: tl.constexpr, context_kind: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr,
    gradient: tl.constexpr, fast: tl.constexpr, use_tma: tl.constexpr, pad: tl.constexpr,
    width: tl.constexpr, value_width: tl.constexpr, row_block: tl.constexpr, key_block: tl.constexpr,
    stages: tl.constexpr, edges: tl.constexpr,
):  # fmt: skip
    """Write a block of rows of the output; with `gradient`, of the gradient of q.

    `above` is the gradient of the output. The scale is 1 over the scaling length, or half of alpha times that.
    `context_kind` is 0 for no contextuals, 1 for `context` in each sequence, 2 for the tensor `contextuals`.
    """
    pair, place = _place(heads, batch, blocks, together)
    first = (blocks - 1 - place) * row_block
    head = (pair % heads).to(tl.int64)
    item = _longest_first(pair // heads, offsets, batch, pad)
    start, length, history, shift = _sequence(item, offsets, targets, contextuals, context, has_targets, context_kind)
    if first >= length:
        return
    last = tl.minimum(first + row_block, length) - 1
    # Keys from low to high. Those from bare to dressed need no mask; those from `middle` to `again` are left out
    low = 0
    bare = 0
    high = length
    if causal:
        high = last + 1
        dressed = tl.minimum(first, history)
        if has_window:
            low = tl.where(first - shift - window > 0, first - window, 0)
            bare = tl.where(last - shift - window > 0, last - window, 0)
            if has_full:
                low = tl.where(last >= history - full, 0, low)
                bare = tl.where(first >= history - full, 0, bare)
    else:
        dressed = history
        if context_kind != 0:
            dressed = tl.where(history - shift > 0, dressed, 0)
        if has_window:
            dressed = 0
    middle = high
    again = high
    if has_targets and causal:
        group_start = history + tl.maximum(first - history, 0) // group * group
        middle = tl.where(first >= history, history, middle)
        again = tl.where(first >= history, group_start, again)
        low = tl.minimum(low, middle)
        bare = tl.minimum(bare, middle)
    if context_kind != 0 and causal:
        mixed = first <= shift
        low = tl.where(mixed, 0, low)
        bare = tl.where(mixed, 0, bare)
        dressed = tl.where(mixed, 0, dressed)
        middle = tl.where(mixed, tl.maximum(high, history), middle)
        again = tl.where(mixed, high, again)
    bare = low + (bare - low + key_block - 1) // key_block * key_block
    dressed = bare + tl.maximum(dressed - bare, 0) // key_block * key_block
    begin = bare
    whole = dressed
    merged: tl.constexpr = edges != APART and causal and not has_targets and context_kind == 0 and not has_window
    if merged:
        begin = low
        whole = low + tl.minimum(middle + key_block - 1, length) // key_block * key_block
    count = (begin - low) // key_block
    count_more = count + (tl.maximum(middle - whole, 0) + key_block - 1) // key_block
    count_all = count_more + (tl.maximum(high - again, 0) + key_block - 1) // key_block

    q_at = q + start * q_row + head * q_head
    k_at = k + start * k_row + head * k_head
    v_at = v + start * v_row + head * v_head
    my_q = _load_some(q_at, first, length, q_row, row_block, width)
    my_above = my_q
    if gradient:
        my_above = _load_some(
            above + start * above_row + head * above_head, first, length, above_row, row_block, value_width
        )
        total = tl.full([row_block, width], 0.0, tl.float32)
    else:
        total = tl.full([row_block, value_width], 0.0, tl.float32)
    rows = (first + tl.arange(0, row_block))[:, None]
    for at in tl.range(begin, whole, key_block, num_stages=stages):
        my_k = _load(k_at, k_tma, at, k_row, head, start, key_block, width, use_tma)
        my_v = _load(v_at, v_tma, at, v_row, head, start, key_block, value_width, use_tma)
        half, of_weights = _products(my_q, my_k, my_above, my_v, half_alpha, gradient)
        if merged:
            half = _causal(half, rows, (at + tl.arange(0, key_block))[None, :], at >= dressed, edges)
        total = _key_step(total, half, of_weights, my_k, my_v, gradient, fast)
    for turn in tl.range(0, count_all, num_stages=1):
        at = tl.where(turn < count, low + turn * key_block, whole + (turn - count) * key_block)
        at = tl.where(turn < count_more, at, again + (turn - count_more) * key_block)
        end = tl.where(turn < count_more, middle, high)
        my_k = _load_some(k_at, at, end, k_row, key_block, width)
        my_v = _load_some(v_at, at, end, v_row, key_block, value_width)
        keys = (at + tl.arange(0, key_block))[None, :]
        valid = (keys < end) & _valid(
            rows, keys, history, shift, group, window, full, causal, has_targets, context_kind, has_window, has_full
        )
        half, of_weights = _products(my_q, my_k, my_above, my_v, half_alpha, gradient)
        total = _key_step(total, tl.where(valid, half, NOTHING), of_weights, my_k, my_v, gradient, fast)
    inside = (first + tl.arange(0, row_block) < length)[:, None]
    out_at = out + start * out_row + head * out_head
    if gradient:
        tl.store(_tile(out_at, first, out_row, row_block, width), (total * scale).to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(
            _tile(out_at, first, out_row, row_block, value_width), (total * scale).to(out.dtype.element_ty), mask=inside
        )


@triton.jit
def _row_step(of_k, of_v, half, of_weights, q, above, fast: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add what a block of rows gives to the gradients of k and v."""
    weights, slope = _silu_and_slope(half, fast)
    of_v = tl.dot(weights.to(above.dtype), above, of_v, input_precision="ieee")
    of_k = tl.dot((of_weights * slope).to(q.dtype), q, of_k, input_precision="ieee")
    return of_k, of_v


@triton.jit(do_not_specialize=PLAIN)
def over_rows(  # type: ignore[no-untyped-def]
    q, k, v, above, of_k, of_v, q_tma, above_tma, offsets, targets, contextuals,
    q_row, q_head, k_row, k_head, v_row, v_head, above_row, above_head, of_k_row, of_k_head, of_v_row, of_v_head,
    half_alpha, k_scale, v_scale, context, group, window, full, heads, batch, blocks, together,
    causal: tl.constexpr, has_targets: tl.constexpr, context_kind: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr,
    fast: tl.constexpr, use_tma: tl.constexpr, pad: tl.constexpr,
    width: tl.constexpr, value_width: tl.constexpr, row_block: tl.constexpr, key_block: tl.constexpr,
    stages: tl.constexpr, edges: tl.constexpr,
):  # fmt: skip
    """Write a block of keys of the gradients of k and v. See `over_keys` for what both take."""
    pair, place = _place(heads, batch, blocks, together)
    first = place * key_block
    head = (pair % heads).to(tl.int64)
    item = _longest_first(pair // heads, offsets, batch, pad)
    start, length, history, shift = _sequence(item, offsets, targets, contextuals, context, has_targets, context_kind)
    if first >= length:
        return
    last = tl.minimum(first + key_block, length) - 1
    # Rows below `ahead`, and rows from low to high. Those from bare to dressed need no mask; those from `middle` to
    # `again` are left out
    ahead = 0
    low = 0
    bare = 0
    high = length
    dressed = length
    middle = length
    again = length
    if causal:
        low = first
        bare = first + key_block
        if context_kind != 0:
            bare = tl.maximum(bare, shift + 1)
        if has_targets:
            group_end = history + (tl.maximum(last - history, 0) // group + 1) * group
            high = tl.where(first >= history, tl.minimum(high, group_end), high)
            dressed = tl.where(last >= history, 0, dressed)
        middle = high
        if has_window:
            reach = window + shift + 1
            middle = tl.minimum(middle, tl.maximum(last - shift, 0) + reach)
            dressed = tl.minimum(dressed, tl.maximum(first - shift, 0) + reach)
            if has_full:
                again = tl.maximum(middle, history - full)
        if context_kind != 0:
            ahead = tl.where(first < history, tl.minimum(shift + 1, first), 0)
            low = tl.where(first <= shift, 0, low)
            ahead = tl.where(first <= shift, 0, tl.maximum(ahead, 0))
            middle = tl.where(first <= shift, tl.maximum(middle, tl.minimum(shift + 1, length)), middle)
            again = tl.maximum(again, middle)
            high = tl.maximum(high, middle)
    else:
        dressed = tl.where(last < history, dressed, 0)
        if context_kind != 0:
            dressed = tl.where(history - shift > 0, dressed, 0)
        if has_window:
            dressed = 0
    bare = low + (tl.minimum(bare, middle) - low + row_block - 1) // row_block * row_block
    dressed = bare + tl.maximum(dressed - bare, 0) // row_block * row_block
    begin = bare
    whole = dressed
    merged: tl.constexpr = edges != APART and causal and not has_targets and context_kind == 0 and not has_window
    if merged:
        begin = low
        whole = low + (length - low) // row_block * row_block
    count_ahead = (ahead + row_block - 1) // row_block
    count = count_ahead + (begin - low) // row_block
    count_more = count + (tl.maximum(middle - whole, 0) + row_block - 1) // row_block
    count_all = count_more + (tl.maximum(high - again, 0) + row_block - 1) // row_block

    q_at = q + start * q_row + head * q_head
    above_at = above + start * above_row + head * above_head
    my_k = _load_some(k + start * k_row + head * k_head, first, length, k_row, key_block, width)
    my_v = _load_some(v + start * v_row + head * v_head, first, length, v_row, key_block, value_width)
    my_of_k = tl.full([key_block, width], 0.0, tl.float32)
    my_of_v = tl.full([key_block, value_width], 0.0, tl.float32)
    keys = (first + tl.arange(0, key_block))[:, None]
    for at in tl.range(begin, whole, row_block, num_stages=stages):
        my_q = _load(q_at, q_tma, at, q_row, head, start, row_block, width, use_tma)
        my_above = _load(above_at, above_tma, at, above_row, head, start, row_block, value_width, use_tma)
        half, of_weights = _products(my_k, my_q, my_v, my_above, half_alpha, True)
        if merged:
            half = _causal(half, (at + tl.arange(0, row_block))[None, :], keys, at < bare, edges)
        my_of_k, my_of_v = _row_step(my_of_k, my_of_v, half, of_weights, my_q, my_above, fast)
    for turn in tl.range(0, count_all, num_stages=1):
        at = tl.where(turn < count, low + (turn - count_ahead) * row_block, whole + (turn - count) * row_block)
        at = tl.where(turn < count_more, at, again + (turn - count_more) * row_block)
        at = tl.where(turn < count_ahead, turn * row_block, at)
        end = tl.where(turn < count_more, middle, high)
        end = tl.where(turn < count_ahead, ahead, end)
        my_q = _load_some(q_at, at, end, q_row, row_block, width)
        my_above = _load_some(above_at, at, end, above_row, row_block, value_width)
        rows = (at + tl.arange(0, row_block))[None, :]
        valid = (rows < end) & _valid(
            rows, keys, history, shift, group, window, full, causal, has_targets, context_kind, has_window, has_full
        )
        half, of_weights = _products(my_k, my_q, my_v, my_above, half_alpha, True)
        half = tl.where(valid, half, NOTHING)
        my_of_k, my_of_v = _row_step(my_of_k, my_of_v, half, of_weights, my_q, my_above, fast)
    inside = (first + tl.arange(0, key_block) < length)[:, None]
    tl.store(
        _tile(of_k + start * of_k_row + head * of_k_head, first, of_k_row, key_block, width),
        (my_of_k * k_scale).to(of_k.dtype.element_ty), mask=inside,
    )  # fmt: skip
    tl.store(
        _tile(of_v + start * of_v_row + head * of_v_head, first, of_v_row, key_block, value_width),
        (my_of_v * v_scale).to(of_v.dtype.element_ty), mask=inside,
    )  # fmt: skip
