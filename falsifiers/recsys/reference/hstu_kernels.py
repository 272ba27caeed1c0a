"""Triton kernels of HSTU attention: `over_keys` computes the output or the gradient of q, `over_rows` those of k and v.

A program has one block of rows and loops over the keys, or one block of keys and loops over the rows. No two programs
write to one address, so results are deterministic. A sweep has two loops: blocks without a mask come first and are
loaded by TMA, then up to four ranges of blocks with a mask. With `merged`, the block on the diagonal is in the first
loop, where a branch masks it. A branch with more mask than causality stalls the tensor cores.

The scores need no maximum, because silu is no softmax. With `fast`, the sigmoid is one tanh.approx of half the score.
"""

from __future__ import annotations

import triton
import triton.language as tl

from falsifiers.recsys.reference.hstu_pairs import keys_of, rows_of, sequence, valid

PLAIN = ["group", "window", "full", "heads", "batch", "blocks", "together"]
"""Arguments whose values do not trigger recompilation."""
NOTHING = tl.constexpr(-64.0)
"""Half of a score for which silu and its slope are 0."""


@triton.jit
def _place(heads, batch, blocks, together):  # type: ignore[no-untyped-def]
    """Return the head of the batch and the block of a program.

    Programs of `together` heads alternate, so that equal blocks of these heads run side by side.
    """
    program = tl.program_id(0)
    group = program // (together * blocks)
    inside = program - group * (together * blocks)
    size = tl.minimum(together, heads * batch - group * together)
    return group * together + inside % size, inside // size


@triton.jit
def _longest_first(place, offsets, batch, pad: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the number of the sequence at a position in the order of length. `pad` is 0 to keep their order."""
    if pad == 0:
        item = place
    else:
        lane = tl.arange(0, pad)
        there = lane < batch
        lengths = tl.load(offsets + lane + 1, mask=there, other=0) - tl.load(offsets + lane, mask=there, other=1)
        mine = lengths[:, None]
        others = lengths[None, :]
        before = (others > mine) | ((others == mine) & (lane[None, :] < lane[:, None]))
        rank = tl.reduce(before.to(tl.int32), 1, tl.standard._sum_combine)  # type: ignore[attr-defined]
        item = tl.reduce(tl.where(rank == place, lane, 0), 0, tl.standard._sum_combine)  # type: ignore[attr-defined]
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
    """Return rows; zeros from `end` on, so that the next sequence has no effect."""
    inside = first + tl.arange(0, size) < end
    return tl.load(_tile(at, first, row_stride, size, width), mask=inside[:, None], other=0.0)


@triton.jit
def _products(q, k, do, v, half_alpha, gradient: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return half of the scores, and the gradient of the weights: [rows of q, rows of k]."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    dp = scores
    if gradient:
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    return scores * half_alpha, dp


@triton.jit
def _key_step(total, half, dp, k, v, gradient: tl.constexpr, fast: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add the contribution of a block of keys to the output, or to the gradient of q."""
    if gradient:
        _, slope = _silu_and_slope(half, fast)
        total = tl.dot((dp * slope).to(k.dtype), k, total, input_precision="ieee")
    else:
        total = tl.dot(_silu(half, fast).to(v.dtype), v, total, input_precision="ieee")
    return total


@triton.jit(do_not_specialize=PLAIN)
def over_keys(  # type: ignore[no-untyped-def]
    q, k, v, do, out, k_tma, v_tma, offsets, targets, contextuals,
    q_row, q_head, k_row, k_head, v_row, v_head, do_row, do_head, out_row, out_head,
    half_alpha, scale, group, window, full, heads, batch, blocks, together,
    causal: tl.constexpr, has_targets: tl.constexpr, has_contextuals: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr, merged: tl.constexpr,
    gradient: tl.constexpr, fast: tl.constexpr, use_tma: tl.constexpr, pad: tl.constexpr,
    width: tl.constexpr, value_width: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr,
    stages: tl.constexpr,
):  # fmt: skip
    """Write a block of rows of the output; with `gradient`, of the gradient of q.

    `do` is the gradient of the output. The scale is 1 over the scaling length, or half of alpha times that. `pad` is
    a power of two, at least the number of sequences, to begin with the longest of them; 0 to keep their order.
    """
    pair, place = _place(heads, batch, blocks, together)
    first = (blocks - 1 - place) * block_m
    head = (pair % heads).to(tl.int64)
    item = _longest_first(pair // heads, offsets, batch, pad)
    start, length, history, shift = sequence(item, offsets, targets, contextuals, has_targets, has_contextuals)
    if first >= length:
        return
    low, unmasked, masked, middle, again, high = keys_of(
        first, block_m, length, history, shift, group, window, full,
        causal, has_targets, has_contextuals, has_window, has_full,
    )  # fmt: skip
    unmasked = low + (unmasked - low + block_n - 1) // block_n * block_n
    masked = unmasked + tl.maximum(masked - unmasked, 0) // block_n * block_n
    begin = unmasked
    whole = masked
    if merged:
        begin = low
        whole = low + tl.minimum(middle + block_n - 1, length) // block_n * block_n
    count = (begin - low) // block_n
    count_more = count + (tl.maximum(middle - whole, 0) + block_n - 1) // block_n
    count_all = count_more + (tl.maximum(high - again, 0) + block_n - 1) // block_n

    q_at = q + start * q_row + head * q_head
    k_at = k + start * k_row + head * k_head
    v_at = v + start * v_row + head * v_head
    q_tile = _load_some(q_at, first, length, q_row, block_m, width)
    do_tile = q_tile
    if gradient:
        do_tile = _load_some(do + start * do_row + head * do_head, first, length, do_row, block_m, value_width)
        total = tl.full([block_m, width], 0.0, tl.float32)
    else:
        total = tl.full([block_m, value_width], 0.0, tl.float32)
    rows = (first + tl.arange(0, block_m))[:, None]
    for at in tl.range(begin, whole, block_n, num_stages=stages):
        k_tile = _load(k_at, k_tma, at, k_row, head, start, block_n, width, use_tma)
        v_tile = _load(v_at, v_tma, at, v_row, head, start, block_n, value_width, use_tma)
        half, dp = _products(q_tile, k_tile, do_tile, v_tile, half_alpha, gradient)
        if merged:  # noqa: SIM102 - the compiler knows this condition
            if at >= masked:
                half = tl.where(rows >= (at + tl.arange(0, block_n))[None, :], half, NOTHING)
        total = _key_step(total, half, dp, k_tile, v_tile, gradient, fast)
    for turn in tl.range(0, count_all, num_stages=1):
        at = tl.where(turn < count, low + turn * block_n, whole + (turn - count) * block_n)
        at = tl.where(turn < count_more, at, again + (turn - count_more) * block_n)
        end = tl.where(turn < count_more, middle, high)
        k_tile = _load_some(k_at, at, end, k_row, block_n, width)
        v_tile = _load_some(v_at, at, end, v_row, block_n, value_width)
        keys = (at + tl.arange(0, block_n))[None, :]
        pairs = (keys < end) & valid(
            rows, keys, history, shift, group, window, full, causal, has_targets, has_contextuals, has_window, has_full
        )
        half, dp = _products(q_tile, k_tile, do_tile, v_tile, half_alpha, gradient)
        total = _key_step(total, tl.where(pairs, half, NOTHING), dp, k_tile, v_tile, gradient, fast)
    inside = (first + tl.arange(0, block_m) < length)[:, None]
    out_at = out + start * out_row + head * out_head
    if gradient:
        tl.store(_tile(out_at, first, out_row, block_m, width), (total * scale).to(out.dtype.element_ty), mask=inside)
    else:
        tl.store(
            _tile(out_at, first, out_row, block_m, value_width), (total * scale).to(out.dtype.element_ty), mask=inside
        )


@triton.jit
def _row_step(dk, dv, half, dp, q, do, fast: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add the contribution of a block of rows to the gradients of k and v."""
    weights, slope = _silu_and_slope(half, fast)
    dv = tl.dot(weights.to(do.dtype), do, dv, input_precision="ieee")
    dk = tl.dot((dp * slope).to(q.dtype), q, dk, input_precision="ieee")
    return dk, dv


@triton.jit(do_not_specialize=PLAIN)
def over_rows(  # type: ignore[no-untyped-def]
    q, k, v, do, dk, dv, q_tma, do_tma, offsets, targets, contextuals,
    q_row, q_head, k_row, k_head, v_row, v_head, do_row, do_head, dk_row, dk_head, dv_row, dv_head,
    half_alpha, k_scale, v_scale, group, window, full, heads, batch, blocks, together,
    causal: tl.constexpr, has_targets: tl.constexpr, has_contextuals: tl.constexpr, has_window: tl.constexpr,
    has_full: tl.constexpr, merged: tl.constexpr,
    fast: tl.constexpr, use_tma: tl.constexpr, pad: tl.constexpr,
    width: tl.constexpr, value_width: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr,
    stages: tl.constexpr,
):  # fmt: skip
    """Write a block of keys of the gradients of k and v. See `over_keys` for the common arguments."""
    pair, place = _place(heads, batch, blocks, together)
    first = place * block_n
    head = (pair % heads).to(tl.int64)
    item = _longest_first(pair // heads, offsets, batch, pad)
    start, length, history, shift = sequence(item, offsets, targets, contextuals, has_targets, has_contextuals)
    if first >= length:
        return
    ahead, low, unmasked, masked, middle, again, high = rows_of(
        first, block_n, length, history, shift, group, window, full,
        causal, has_targets, has_contextuals, has_window, has_full,
    )  # fmt: skip
    unmasked = low + (tl.minimum(unmasked, middle) - low + block_m - 1) // block_m * block_m
    masked = unmasked + tl.maximum(masked - unmasked, 0) // block_m * block_m
    begin = unmasked
    whole = masked
    if merged:
        begin = low
        whole = low + (length - low) // block_m * block_m
    count_ahead = (ahead + block_m - 1) // block_m
    count = count_ahead + (begin - low) // block_m
    count_more = count + (tl.maximum(middle - whole, 0) + block_m - 1) // block_m
    count_all = count_more + (tl.maximum(high - again, 0) + block_m - 1) // block_m

    q_at = q + start * q_row + head * q_head
    do_at = do + start * do_row + head * do_head
    k_tile = _load_some(k + start * k_row + head * k_head, first, length, k_row, block_n, width)
    v_tile = _load_some(v + start * v_row + head * v_head, first, length, v_row, block_n, value_width)
    dk_tile = tl.full([block_n, width], 0.0, tl.float32)
    dv_tile = tl.full([block_n, value_width], 0.0, tl.float32)
    keys = (first + tl.arange(0, block_n))[:, None]
    for at in tl.range(begin, whole, block_m, num_stages=stages):
        q_tile = _load(q_at, q_tma, at, q_row, head, start, block_m, width, use_tma)
        do_tile = _load(do_at, do_tma, at, do_row, head, start, block_m, value_width, use_tma)
        half, dp = _products(k_tile, q_tile, v_tile, do_tile, half_alpha, True)
        if merged:  # noqa: SIM102 - the compiler knows this condition
            if at < unmasked:
                half = tl.where((at + tl.arange(0, block_m))[None, :] >= keys, half, NOTHING)
        dk_tile, dv_tile = _row_step(dk_tile, dv_tile, half, dp, q_tile, do_tile, fast)
    for turn in tl.range(0, count_all, num_stages=1):
        at = tl.where(turn < count, low + (turn - count_ahead) * block_m, whole + (turn - count) * block_m)
        at = tl.where(turn < count_more, at, again + (turn - count_more) * block_m)
        at = tl.where(turn < count_ahead, turn * block_m, at)
        end = tl.where(turn < count_more, middle, high)
        end = tl.where(turn < count_ahead, ahead, end)
        q_tile = _load_some(q_at, at, end, q_row, block_m, width)
        do_tile = _load_some(do_at, at, end, do_row, block_m, value_width)
        rows = (at + tl.arange(0, block_m))[None, :]
        pairs = (rows < end) & valid(
            rows, keys, history, shift, group, window, full, causal, has_targets, has_contextuals, has_window, has_full
        )
        half, dp = _products(k_tile, q_tile, v_tile, do_tile, half_alpha, True)
        half = tl.where(pairs, half, NOTHING)
        dk_tile, dv_tile = _row_step(dk_tile, dv_tile, half, dp, q_tile, do_tile, fast)
    inside = (first + tl.arange(0, block_n) < length)[:, None]
    tl.store(
        _tile(dk + start * dk_row + head * dk_head, first, dk_row, block_n, width),
        (dk_tile * k_scale).to(dk.dtype.element_ty), mask=inside,
    )  # fmt: skip
    tl.store(
        _tile(dv + start * dv_row + head * dv_head, first, dv_row, block_n, value_width),
        (dv_tile * v_scale).to(dv.dtype.element_ty), mask=inside,
    )  # fmt: skip
