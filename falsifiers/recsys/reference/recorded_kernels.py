"""Kernels of a recorded lookup: those of `table_kernels`, with the batch's numbers in device memory.

A CUDA graph replays a kernel with its recorded arguments, so values that change cannot be arguments. `numbers` has the
number of the batch, and the score of its keys.
"""

from __future__ import annotations

import triton
import triton.language as tl

from falsifiers.recsys.reference.table_kernels import NUMBERS, insert_groups, start_rows, touch_groups


@triton.jit(do_not_specialize=NUMBERS)
def touch_recorded(  # type: ignore[no-untyped-def]
    keys, groups, count: tl.int32, slots, fresh, starts, totals, digests, table_keys, scores, batches, newest,
    buckets: tl.int64, numbers, counted: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    touch_groups(
        keys, groups, keys, count, slots, fresh, starts, totals, digests, table_keys, scores, batches, newest, buckets,
        tl.load(numbers + 1), tl.load(numbers), False, counted, False, block,
    )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS)
def insert_recorded(  # type: ignore[no-untyped-def]
    new_keys, groups, count: tl.int32, slots, fresh, gone, starts, totals, digests, keys, scores, batches, size,
    newest, buckets: tl.int64, numbers, counted: tl.constexpr, block: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    insert_groups(
        new_keys, groups, count, slots, fresh, gone, starts, totals, digests, keys, scores, batches, size, newest,
        buckets, tl.load(numbers + 1), tl.load(numbers), counted, False, block, chunk,
    )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS)
def start_recorded(  # type: ignore[no-untyped-def]
    rows_of, slots, fresh, keys, groups, newest, count: tl.int32, numbers, seed: tl.int64, spread,
    width: tl.constexpr, dim: tl.constexpr, kind: tl.constexpr, parts: tl.constexpr, block: tl.constexpr,
    columns: tl.constexpr,
):  # fmt: skip
    start_rows(
        rows_of, slots, fresh, keys, groups, newest, count, tl.load(numbers), seed, spread, width, dim, kind, parts,
        block, columns,
    )  # fmt: skip
