"""HSTU attention with a causal mask alone on sm_90, in Gluon: `hopper_keys` and `hopper_rows`, see `hstu_kernels`.

A program has up to two tiles of 128 rows (or keys) of one head of one sequence: one from each end, so that programs of
a sequence take equal times. Two groups of four warps have 64 rows of a tile each, and a warp loads blocks of 64 keys
(or rows) into a ring in shared memory by TMA, also those of the second tile while the first one is finished. While one
group makes weights from scores, the tensor cores have the products of the other, and the group's own next scores.

A ring is a tuple: blocks of x and of y, and for the slots of each a barrier `full` when the block is there, and one
`empty` when both groups have read it. Its turns count through both tiles. Blocks reach into the next sequence. Where
that could matter, the rows behind the end are set to zero in shared memory. Results are written through the shared
memory of the tile's own blocks.

Only bfloat16, since silu comes from tanh.approx. The parts of a kernel take what they share as arguments, because warps
that are split off see nothing else. No interpreter has these kernels.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from falsifiers.recsys.reference.hstu_kernels import PLAIN

NOTHING = gl.constexpr(-64.0)
"""Half of a score for which silu and its slope are 0."""
SIDE = gl.constexpr(64)
"""Rows of a block of q, k, v and the gradient of the output."""
PARTS = gl.constexpr(2)
"""Groups of four warps that compute."""
ROWS = 128
"""Rows or keys of a tile."""


@gluon.jit
def _tanh(x):  # type: ignore[no-untyped-def]
    return gl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def _slope(half):  # type: ignore[no-untyped-def]
    """Return twice the slope of silu at 2 half."""
    tanh = _tanh(half)
    return half * (1.0 - tanh * tanh) + (tanh + 1.0)


@gluon.jit
def _barriers(size: gl.constexpr, arrivals: gl.constexpr):  # type: ignore[no-untyped-def]
    """Return barriers in shared memory, each of which waits for a number of arrivals."""
    bars = gl.allocate_shared_memory(gl.int64, [size, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(size):
        mbarrier.init(bars.index(i), count=arrivals)
    return bars


@gluon.jit
def _feed(desc, blocks, full, empty, turn, head, row):  # type: ignore[no-untyped-def]
    """Load a block into its slot as soon as both groups have read what is there."""
    stages: gl.constexpr = blocks.shape[0]
    slot = turn % stages
    mbarrier.wait(empty.index(slot), (turn // stages & 1) ^ 1)
    mbarrier.expect(full.index(slot), desc.block_type.nbytes)
    tma.async_copy_global_to_shared(desc, [head, row, 0], full.index(slot), blocks.index(slot))


@gluon.jit
def _tile(turn, place, length):  # type: ignore[no-untyped-def]
    """Return the first row of a program's tile 0, `place` tiles from the end, or 1, as many from the start."""
    last = (length + PARTS * SIDE - 1) // (PARTS * SIDE) - 1
    return (last - place + turn * (2 * place - last)) * (PARTS * SIDE)


@gluon.jit
def _tiles(place, length):  # type: ignore[no-untyped-def]
    """Return how many tiles a program has: 0, 1 or 2."""
    left = (length + PARTS * SIDE - 1) // (PARTS * SIDE) - 2 * place
    return gl.minimum(gl.maximum(left, 0), 2)


@gluon.jit
def _keys(first, length):  # type: ignore[no-untyped-def]
    """Return how many blocks of keys a tile of rows attends to."""
    return (gl.minimum(first + PARTS * SIDE, length) + SIDE - 1) // SIDE


@gluon.jit
def _rows(first, length):  # type: ignore[no-untyped-def]
    """Return how many blocks of rows attend to a tile of keys."""
    return (length - first + SIDE - 1) // SIDE


@gluon.jit
def _producer(  # type: ignore[no-untyped-def]
    a_tma, b_tma, x_tma, y_tma, a_s, b_s, ring, ready, head, start, length, place, of_keys: gl.constexpr,
    both: gl.constexpr,
):  # fmt: skip
    """Load the tiles' blocks of a (and of b) at once, and those of x and y into the ring; `of_keys` if a is k."""
    x_s, y_s, x_full, x_empty, y_full, y_empty = ring
    tiles = _tiles(place, length)
    for tile in range(tiles):
        bar = ready.index(tile)
        mbarrier.expect(bar, PARTS * (a_tma.block_type.nbytes + (b_tma.block_type.nbytes if both else 0)))
        row = start + _tile(tile, place, length)
        for part in gl.static_range(PARTS):
            tma.async_copy_global_to_shared(a_tma, [head, row + part * SIDE, 0], bar, a_s.index(tile * PARTS + part))
            if both:
                tma.async_copy_global_to_shared(
                    b_tma, [head, row + part * SIDE, 0], bar, b_s.index(tile * PARTS + part)
                )
    base = 0
    for tile in range(tiles):
        first = _tile(tile, place, length)
        row = start
        count = _keys(first, length)
        if of_keys:
            row = start + first
            count = _rows(first, length)
        for turn in range(count):
            _feed(x_tma, x_s, x_full, x_empty, base + turn, head, row + turn * SIDE)
            _feed(y_tma, y_s, y_full, y_empty, base + turn, head, row + turn * SIDE)
        base += count


@gluon.jit
def _block(blocks, slot):  # type: ignore[no-untyped-def]
    """Return the block of a slot, [rows, width]."""
    return blocks.index(slot).reshape([SIDE, blocks.shape[3]])


@gluon.jit
def _wait(full, turn):  # type: ignore[no-untyped-def]
    """Wait for the block of a turn."""
    stages: gl.constexpr = full.shape[0]
    mbarrier.wait(full.index(turn % stages), turn // stages & 1)


@gluon.jit
def _skip(full, empty, turn):  # type: ignore[no-untyped-def]
    """Give the block of a turn back unread. It must be there, else the arrival would count for the one before."""
    _wait(full, turn)
    mbarrier.arrive(empty.index(turn % full.shape[0]), count=1)


@gluon.jit
def _zero_from(tile, left):  # type: ignore[no-untyped-def]
    """Set the rows of a block to 0 from a number on."""
    width: gl.constexpr = tile.shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 // (width // 8), width // 8], [4, 1], [1, 0])
    rows = gl.arange(0, SIDE, gl.SliceLayout(1, layout))
    value = tile.load(layout)
    tile.store(gl.where((rows < left)[:, None], value, gl.full_like(value, 0)))
    fence_async_shared()


@gluon.jit
def _write(through, at, row_stride, first, length, value):  # type: ignore[no-untyped-def]
    """Write a block of rows of a head, without those behind the end, through a block that is read no more."""
    width: gl.constexpr = value.shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32 // (width // 8), width // 8], [4, 1], [1, 0])
    through.store(value.to(at.dtype.element_ty))
    value = through.load(layout)
    rows = first + gl.arange(0, SIDE, gl.SliceLayout(1, layout))
    columns = gl.arange(0, width, gl.SliceLayout(0, layout))
    gl.store(at + rows.to(gl.int64)[:, None] * row_stride + columns[None, :], value, mask=(rows < length)[:, None])


@gluon.jit
def _place(heads, batch, blocks, together):  # type: ignore[no-untyped-def]
    """See `hstu_kernels`."""
    program = gl.program_id(0)
    group = program // (together * blocks)
    inside = program - group * (together * blocks)
    size = gl.minimum(together, heads * batch - group * together)
    return group * together + inside % size, inside // size


@gluon.jit
def _out_step(q, s, acc, ring, turn, half_alpha, zero, p_layout: gl.constexpr):  # type: ignore[no-untyped-def]
    """Begin the scores of the next block of keys, and add what a block gives to the output."""
    k_s, v_s, k_full, k_empty, v_full, v_empty = ring
    stages: gl.constexpr = k_s.shape[0]
    slot = turn % stages
    after = (turn + 1) % stages
    _wait(k_full, turn + 1)
    s_next = warpgroup_mma(q, _block(k_s, after).permute((1, 0)), zero, use_acc=False, is_async=True)
    half = s * half_alpha
    p = gl.convert_layout((half * _tanh(half) + half).to(v_s.dtype), p_layout)
    _wait(v_full, turn)
    acc = warpgroup_mma(p, _block(v_s, slot), acc, is_async=True)
    s_next = warpgroup_mma_wait(1, deps=[s_next])
    mbarrier.arrive(k_empty.index(after), count=1)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(v_empty.index(slot), count=1)
    return s_next, acc


@gluon.jit
def _out_group(  # type: ignore[no-untyped-def]
    q_s, ring, ready, out_at, out_row, length, place, half_alpha, scale, part: gl.constexpr
):  # fmt: skip
    """Write a group's rows of the output."""
    k_s, v_s, k_full, k_empty, v_full, v_empty = ring
    stages: gl.constexpr = k_s.shape[0]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SIDE, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, v_s.shape[3], 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    zero = gl.full([SIDE, SIDE], 0.0, gl.float32, s_layout)
    base = 0
    for tile in range(_tiles(place, length)):
        first = _tile(tile, place, length)
        count = _keys(first, length)
        mine = gl.minimum(first // SIDE + part + 1, count)
        rows = first + part * SIDE + gl.arange(0, SIDE, gl.SliceLayout(1, s_layout))
        cols = (mine - 1) * SIDE + gl.arange(0, SIDE, gl.SliceLayout(0, s_layout))
        acc = gl.full([SIDE, v_s.shape[3]], 0.0, gl.float32, o_layout)
        q = _block(q_s, tile * PARTS + part)
        mbarrier.wait(ready.index(tile), 0)
        _wait(k_full, base)
        s = warpgroup_mma(q, _block(k_s, base % stages).permute((1, 0)), zero, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])
        mbarrier.arrive(k_empty.index(base % stages), count=1)
        last = base + mine - 1
        for pair in range((mine - 1) // 2):  # two steps, so that no step copies its scores for the next one
            other, acc = _out_step(q, s, acc, ring, base + 2 * pair, half_alpha, zero, p_layout)
            s, acc = _out_step(q, other, acc, ring, base + 2 * pair + 1, half_alpha, zero, p_layout)
        if mine % 2 == 0:
            s, acc = _out_step(q, s, acc, ring, last - 1, half_alpha, zero, p_layout)
        half = gl.where(rows[:, None] >= cols[None, :], s * half_alpha, NOTHING)
        p = gl.convert_layout((half * _tanh(half) + half).to(q_s.dtype), p_layout)
        _wait(v_full, last)
        v = _block(v_s, last % stages)
        if mine * SIDE > length:
            _zero_from(v, length - (mine - 1) * SIDE)
        acc = warpgroup_mma(p, v, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(v_empty.index(last % stages), count=1)
        for turn in range(mine, count):
            _skip(k_full, k_empty, base + turn)
            _skip(v_full, v_empty, base + turn)
        base += count
        _write(q, out_at, out_row, first + part * SIDE, length, acc * scale)


@gluon.jit
def _dq_step(q, do, s, dp, acc, ring, turn, half_alpha, zero, p_layout: gl.constexpr):  # type: ignore[no-untyped-def]
    """Begin the scores and dp of the next block of keys, and add what a block gives to the gradient of q."""
    k_s, v_s, k_full, k_empty, v_full, v_empty = ring
    stages: gl.constexpr = k_s.shape[0]
    slot = turn % stages
    after = (turn + 1) % stages
    _wait(k_full, turn + 1)
    s_next = warpgroup_mma(q, _block(k_s, after).permute((1, 0)), zero, use_acc=False, is_async=True)
    ds = gl.convert_layout((dp * _slope(s * half_alpha)).to(k_s.dtype), p_layout)
    acc = warpgroup_mma(ds, _block(k_s, slot), acc, is_async=True)
    _wait(v_full, turn + 1)
    dp = warpgroup_mma(do, _block(v_s, after).permute((1, 0)), zero, use_acc=False, is_async=True)
    s_next = warpgroup_mma_wait(2, deps=[s_next])
    acc = warpgroup_mma_wait(1, deps=[acc])
    mbarrier.arrive(k_empty.index(slot), count=1)
    dp = warpgroup_mma_wait(0, deps=[dp])
    mbarrier.arrive(v_empty.index(after), count=1)
    return s_next, dp, acc


@gluon.jit
def _dq_group(  # type: ignore[no-untyped-def]
    q_s, do_s, ring, ready, out_at, out_row, length, place, half_alpha, scale, part: gl.constexpr
):  # fmt: skip
    """Write a group's rows of the gradient of q."""
    k_s, v_s, k_full, k_empty, v_full, v_empty = ring
    stages: gl.constexpr = k_s.shape[0]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SIDE, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, k_s.shape[3], 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    zero = gl.full([SIDE, SIDE], 0.0, gl.float32, s_layout)
    base = 0
    for tile in range(_tiles(place, length)):
        first = _tile(tile, place, length)
        count = _keys(first, length)
        mine = gl.minimum(first // SIDE + part + 1, count)
        rows = first + part * SIDE + gl.arange(0, SIDE, gl.SliceLayout(1, s_layout))
        cols = (mine - 1) * SIDE + gl.arange(0, SIDE, gl.SliceLayout(0, s_layout))
        acc = gl.full([SIDE, k_s.shape[3]], 0.0, gl.float32, o_layout)
        q = _block(q_s, tile * PARTS + part)
        do = _block(do_s, tile * PARTS + part)
        mbarrier.wait(ready.index(tile), 0)
        _wait(k_full, base)
        s = warpgroup_mma(q, _block(k_s, base % stages).permute((1, 0)), zero, use_acc=False, is_async=True)
        _wait(v_full, base)
        dp = warpgroup_mma(do, _block(v_s, base % stages).permute((1, 0)), zero, use_acc=False, is_async=True)
        s, dp = warpgroup_mma_wait(0, deps=[s, dp])
        mbarrier.arrive(v_empty.index(base % stages), count=1)
        last = base + mine - 1
        for pair in range((mine - 1) // 2):
            other, dp, acc = _dq_step(q, do, s, dp, acc, ring, base + 2 * pair, half_alpha, zero, p_layout)
            s, dp, acc = _dq_step(q, do, other, dp, acc, ring, base + 2 * pair + 1, half_alpha, zero, p_layout)
        if mine % 2 == 0:
            s, dp, acc = _dq_step(q, do, s, dp, acc, ring, last - 1, half_alpha, zero, p_layout)
        slope = _slope(gl.where(rows[:, None] >= cols[None, :], s * half_alpha, NOTHING))
        k = _block(k_s, last % stages)
        if mine * SIDE > length:
            dp = gl.where(cols[None, :] < length, dp, 0.0)
            _zero_from(k, length - (mine - 1) * SIDE)
        ds = gl.convert_layout((dp * slope).to(q_s.dtype), p_layout)
        acc = warpgroup_mma(ds, k, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(k_empty.index(last % stages), count=1)
        for turn in range(mine, count):
            _skip(k_full, k_empty, base + turn)
            _skip(v_full, v_empty, base + turn)
        base += count
        _write(q, out_at, out_row, first + part * SIDE, length, acc * scale)


@gluon.jit
def _dkdv_group(  # type: ignore[no-untyped-def]
    k_s, v_s, ring, ready, dk_at, dk_row, dv_at, dv_row, length, place, half_alpha, k_scale, v_scale,
    part: gl.constexpr,
):  # fmt: skip
    """Write a group's rows of the gradients of k and v."""
    q_s, do_s, q_full, q_empty, do_full, do_empty = ring
    stages: gl.constexpr = q_s.shape[0]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SIDE, 16])
    k_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, k_s.shape[3], 16])
    v_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, v_s.shape[3], 16])
    rows = gl.arange(0, SIDE, gl.SliceLayout(0, s_layout))
    zero = gl.full([SIDE, SIDE], 0.0, gl.float32, s_layout)
    base = 0
    for tile in range(_tiles(place, length)):
        first = _tile(tile, place, length)
        count = _rows(first, length)
        keys = first + part * SIDE + gl.arange(0, SIDE, gl.SliceLayout(1, s_layout))
        dk = gl.full([SIDE, k_s.shape[3]], 0.0, gl.float32, k_layout)
        dv = gl.full([SIDE, v_s.shape[3]], 0.0, gl.float32, v_layout)
        k = _block(k_s, tile * PARTS + part)
        v = _block(v_s, tile * PARTS + part)
        mbarrier.wait(ready.index(tile), 0)
        for turn in range(gl.minimum(part, count)):  # rows before the group's keys
            _skip(q_full, q_empty, base + turn)
            _skip(do_full, do_empty, base + turn)
        for turn in range(part, count):
            slot = (base + turn) % stages
            at = first + turn * SIDE
            _wait(q_full, base + turn)
            _wait(do_full, base + turn)
            q = _block(q_s, slot)
            do = _block(do_s, slot)
            if at + SIDE > length:
                _zero_from(q, length - at)
                _zero_from(do, length - at)
            s = warpgroup_mma(k, q.permute((1, 0)), zero, use_acc=False, is_async=True)
            dp = warpgroup_mma(v, do.permute((1, 0)), zero, use_acc=False, is_async=True)
            half = warpgroup_mma_wait(1, deps=[s]) * half_alpha
            if turn == part:
                half = gl.where((at + rows)[None, :] >= keys[:, None], half, NOTHING)
            tanh = _tanh(half)
            slope = half * (1.0 - tanh * tanh) + (tanh + 1.0)
            p = gl.convert_layout((half * tanh + half).to(q_s.dtype), gl.DotOperandLayout(0, v_layout, 2))
            dv = warpgroup_mma(p, do, dv, is_async=True)
            dp = warpgroup_mma_wait(1, deps=[dp])
            ds = gl.convert_layout((dp * slope).to(q_s.dtype), gl.DotOperandLayout(0, k_layout, 2))
            dk = warpgroup_mma(ds, q, dk, is_async=True)
            dv = warpgroup_mma_wait(1, deps=[dv])
            mbarrier.arrive(do_empty.index(slot), count=1)
            dk = warpgroup_mma_wait(0, deps=[dk])
            mbarrier.arrive(q_empty.index(slot), count=1)
        base += count
        _write(k, dk_at, dk_row, first + part * SIDE, length, dk * k_scale)
        _write(v, dv_at, dv_row, first + part * SIDE, length, dv * v_scale)


@gluon.jit(do_not_specialize=PLAIN)
def hopper_keys(  # type: ignore[no-untyped-def]
    q, k, v, do, out, q_tma, do_tma, k_tma, v_tma, offsets, targets, contextuals,
    q_row, q_head, k_row, k_head, v_row, v_head, do_row, do_head, out_row, out_head,
    half_alpha, scale, group, window, full, heads, batch, blocks, together,
    gradient: gl.constexpr, use_tma: gl.constexpr, width: gl.constexpr, stages: gl.constexpr,
    registers: gl.constexpr,
):  # fmt: skip
    """Write two tiles of the output; with `gradient`, of the gradient of q. Arguments are those of `over_keys`.

    A thread of a group has `registers`.
    """
    pair, place = _place(heads, batch, blocks, together)
    head = pair % heads
    item = pair // heads
    start = gl.load(offsets + item).to(gl.int32)
    length = gl.load(offsets + item + 1).to(gl.int32) - start
    if _tiles(place, length) > 0:
        q_s = gl.allocate_shared_memory(q_tma.dtype, [2 * PARTS, 1, SIDE, width], q_tma.layout)
        k_s = gl.allocate_shared_memory(q_tma.dtype, [stages, 1, SIDE, width], k_tma.layout)
        v_s = gl.allocate_shared_memory(q_tma.dtype, [stages, 1, SIDE, width], v_tma.layout)
        ready = _barriers(2, 1)
        loaded, emptied = _barriers(stages, 1), _barriers(stages, PARTS)
        ring = (k_s, v_s, loaded, emptied, _barriers(stages, 1), _barriers(stages, PARTS))
        at = out + start.to(gl.int64) * out_row + head.to(gl.int64) * out_head
        if gradient:
            do_s = gl.allocate_shared_memory(q_tma.dtype, [2 * PARTS, 1, SIDE, width], do_tma.layout)
            gl.warp_specialize([
                (_dq_group, (q_s, do_s, ring, ready, at, out_row, length, place, half_alpha, scale, 0)),
                (_dq_group, (q_s, do_s, ring, ready, at, out_row, length, place, half_alpha, scale, 1)),
                (_producer, (q_tma, do_tma, k_tma, v_tma, q_s, do_s, ring, ready, head, start, length, place, False,
                             True)),
            ], [4, 1], [registers, 24])  # fmt: skip
        else:
            gl.warp_specialize([
                (_out_group, (q_s, ring, ready, at, out_row, length, place, half_alpha, scale, 0)),
                (_out_group, (q_s, ring, ready, at, out_row, length, place, half_alpha, scale, 1)),
                (_producer, (q_tma, q_tma, k_tma, v_tma, q_s, q_s, ring, ready, head, start, length, place, False,
                             False)),
            ], [4, 1], [registers, 24])  # fmt: skip


@gluon.jit(do_not_specialize=PLAIN)
def hopper_rows(  # type: ignore[no-untyped-def]
    q, k, v, do, dk, dv, q_tma, do_tma, k_tma, v_tma, offsets, targets, contextuals,
    q_row, q_head, k_row, k_head, v_row, v_head, do_row, do_head, dk_row, dk_head, dv_row, dv_head,
    half_alpha, k_scale, v_scale, group, window, full, heads, batch, blocks, together,
    use_tma: gl.constexpr, width: gl.constexpr, stages: gl.constexpr, registers: gl.constexpr,
):  # fmt: skip
    """Write two tiles of the gradients of k and v. Arguments are those of `over_rows`, and `registers`."""
    pair, place = _place(heads, batch, blocks, together)
    head = pair % heads
    item = pair // heads
    start = gl.load(offsets + item).to(gl.int32)
    length = gl.load(offsets + item + 1).to(gl.int32) - start
    if _tiles(place, length) > 0:
        q_s = gl.allocate_shared_memory(q_tma.dtype, [stages, 1, SIDE, width], q_tma.layout)
        do_s = gl.allocate_shared_memory(q_tma.dtype, [stages, 1, SIDE, width], do_tma.layout)
        k_s = gl.allocate_shared_memory(q_tma.dtype, [2 * PARTS, 1, SIDE, width], k_tma.layout)
        v_s = gl.allocate_shared_memory(q_tma.dtype, [2 * PARTS, 1, SIDE, width], v_tma.layout)
        ready = _barriers(2, 1)
        loaded, emptied = _barriers(stages, 1), _barriers(stages, PARTS)
        ring = (q_s, do_s, loaded, emptied, _barriers(stages, 1), _barriers(stages, PARTS))
        dk_at = dk + start.to(gl.int64) * dk_row + head.to(gl.int64) * dk_head
        dv_at = dv + start.to(gl.int64) * dv_row + head.to(gl.int64) * dv_head
        gl.warp_specialize([
            (_dkdv_group, (k_s, v_s, ring, ready, dk_at, dk_row, dv_at, dv_row, length, place, half_alpha, k_scale,
                           v_scale, 0)),
            (_dkdv_group, (k_s, v_s, ring, ready, dk_at, dk_row, dv_at, dv_row, length, place, half_alpha, k_scale,
                           v_scale, 1)),
            (_producer, (k_tma, v_tma, q_tma, do_tma, k_s, v_s, ring, ready, head, start, length, place, True, True)),
        ], [4, 1], [registers, 24])  # fmt: skip
