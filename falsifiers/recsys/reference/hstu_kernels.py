"""Triton kernels of HSTU attention: `over_keys` makes the output or the gradient of q, `over_rows` those of k and v.

A program has one block of rows and sweeps the keys, or one block of keys and sweeps the rows. No two programs write to
one place, so results repeat bit by bit. A sweep has two loops: blocks that need no mask come first and are loaded by
TMA, then up to four stretches of blocks with a mask. With `merged`, the block on the diagonal is in the first loop,
where a branch masks it. A branch with more of a mask than causality stops the tensor cores.

The scores need no maximum, since silu is no softmax. With `fast` the sigmoid is one tanh.approx of half the score.
"""

from __future__ import annotations

import triton
import triton.language as tl

from falsifiers.recsys.reference.hstu_pairs import keys_of, rows_of, sequence, valid

__all__ = ["over_keys", "over_rows"]

PLAIN = ["group", "window", "full", "heads", "batch", "blocks", "together"]
"""Numbers for whose value no kernel is compiled anew."""
NOTHING = tl.constexpr(-64.0)
"""Half of a score for which silu and its slope are 0."""


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
    half_alpha, scale, group, window, full, heads, batch, blocks, together,
    causal: tl.constexpr, has_targets: tl.constexpr, has_contextuals: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr, merged: tl.constexpr,
    gradient: tl.constexpr, fast: tl.constexpr, use_tma: tl.constexpr, pad: tl.constexpr,
    width: tl.constexpr, value_width: tl.constexpr, row_block: tl.constexpr, key_block: tl.constexpr,
    stages: tl.constexpr,
):  # fmt: skip
    """Write a block of rows of the output; with `gradient`, of the gradient of q.

    `above` is the gradient of the output. The scale is 1 over the scaling length, or half of alpha times that. `pad` is
    a power of two, at least the number of sequences, to begin with the longest of them; 0 to keep their order.
    """
    pair, place = _place(heads, batch, blocks, together)
    first = (blocks - 1 - place) * row_block
    head = (pair % heads).to(tl.int64)
    item = _longest_first(pair // heads, offsets, batch, pad)
    start, length, history, shift = sequence(item, offsets, targets, contextuals, has_targets, has_contextuals)
    if first >= length:
        return
    low, bare, dressed, middle, again, high = keys_of(
        first, row_block, length, history, shift, group, window, full,
        causal, has_targets, has_contextuals, has_window, has_full,
    )  # fmt: skip
    bare = low + (bare - low + key_block - 1) // key_block * key_block
    dressed = bare + tl.maximum(dressed - bare, 0) // key_block * key_block
    begin = bare
    whole = dressed
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
        if merged:  # noqa: SIM102 - the compiler knows this condition
            if at >= dressed:
                half = tl.where(rows >= (at + tl.arange(0, key_block))[None, :], half, NOTHING)
        total = _key_step(total, half, of_weights, my_k, my_v, gradient, fast)
    for turn in tl.range(0, count_all, num_stages=1):
        at = tl.where(turn < count, low + turn * key_block, whole + (turn - count) * key_block)
        at = tl.where(turn < count_more, at, again + (turn - count_more) * key_block)
        end = tl.where(turn < count_more, middle, high)
        my_k = _load_some(k_at, at, end, k_row, key_block, width)
        my_v = _load_some(v_at, at, end, v_row, key_block, value_width)
        keys = (at + tl.arange(0, key_block))[None, :]
        pairs = (keys < end) & valid(
            rows, keys, history, shift, group, window, full, causal, has_targets, has_contextuals, has_window, has_full
        )
        half, of_weights = _products(my_q, my_k, my_above, my_v, half_alpha, gradient)
        total = _key_step(total, tl.where(pairs, half, NOTHING), of_weights, my_k, my_v, gradient, fast)
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
    half_alpha, k_scale, v_scale, group, window, full, heads, batch, blocks, together,
    causal: tl.constexpr, has_targets: tl.constexpr, has_contextuals: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr, merged: tl.constexpr,
    fast: tl.constexpr, use_tma: tl.constexpr, pad: tl.constexpr,
    width: tl.constexpr, value_width: tl.constexpr, row_block: tl.constexpr, key_block: tl.constexpr,
    stages: tl.constexpr,
):  # fmt: skip
    """Write a block of keys of the gradients of k and v. See `over_keys` for what both take."""
    pair, place = _place(heads, batch, blocks, together)
    first = place * key_block
    head = (pair % heads).to(tl.int64)
    item = _longest_first(pair // heads, offsets, batch, pad)
    start, length, history, shift = sequence(item, offsets, targets, contextuals, has_targets, has_contextuals)
    if first >= length:
        return
    ahead, low, bare, dressed, middle, again, high = rows_of(
        first, key_block, length, history, shift, group, window, full,
        causal, has_targets, has_contextuals, has_window, has_full,
    )  # fmt: skip
    bare = low + (tl.minimum(bare, middle) - low + row_block - 1) // row_block * row_block
    dressed = bare + tl.maximum(dressed - bare, 0) // row_block * row_block
    begin = bare
    whole = dressed
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
        if merged:  # noqa: SIM102 - the compiler knows this condition
            if at < bare:
                half = tl.where((at + tl.arange(0, row_block))[None, :] >= keys, half, NOTHING)
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
        pairs = (rows < end) & valid(
            rows, keys, history, shift, group, window, full, causal, has_targets, has_contextuals, has_window, has_full
        )
        half, of_weights = _products(my_k, my_q, my_v, my_above, half_alpha, True)
        half = tl.where(pairs, half, NOTHING)
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
