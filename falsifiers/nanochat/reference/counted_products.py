"""The products of a fused loss over as many rows as the device says, so that ignored rows cost nothing.

The rows that count come first (`linear_cross_entropy`), and how many there are is known to the device alone. A kernel
reads that number and leaves out the tiles behind it, so the host never waits for it.

Each kernel has as many programs as the GPU has multiprocessors. They share out the tiles of a result, and the loop over
a tile's parts runs on into the next tile, so that loads never pause. A result with fewer tiles than programs is made in
parts along its inner dimension, which are added up in a fixed order: equal inputs have equal results.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from falsifiers.nanochat.reference.kernel import Kernel

__all__ = ["Counted", "fits"]

_ALIGNED = 8
"""Numbers in 16 bytes, of which a row of a tensor that is loaded by tiles must be a multiple."""
_LARGEST_SPLIT = 4


def fits(hidden: Tensor, weight: Tensor) -> bool:
    """Return whether these tensors suit the kernels: half precision, with rows of 16 bytes, on sm_90."""
    aligned = len(weight) % _ALIGNED == 0 == weight.shape[1] % _ALIGNED and len(hidden) > 0
    if hidden.dtype not in (torch.bfloat16, torch.float16) or not aligned or not hidden.is_cuda:
        return False
    pointers = hidden.data_ptr() | weight.data_ptr()
    return pointers % 16 == 0 and weight.is_contiguous() and torch.cuda.get_device_capability(hidden.device) == (9, 0)


@dataclass(frozen=True)
class _Tiles:
    """Sizes of the tiles of a product."""

    tall: int
    wide: int
    deep: int
    stages: int


_WIDE = _Tiles(128, 256, 64, 3)
_SQUARE = _Tiles(128, 128, 64, 4)
_SMALL = _Tiles(16, 32, 16, 1)
"""For an interpreter, which needs no large ones."""


class Counted:
    """The products of chunks of one call. All rows of a chunk behind the counted ones are left out."""

    def __init__(self, hidden: Tensor, weight: Tensor, counted: Tensor, order: Tensor, chunk: int) -> None:
        """Args:
        counted: the number of rows that count [], int64.
        order: the rows [rows], those that count first.
        chunk: rows at a time.
        """
        self.hidden, self.weight, self.counted, self.order = hidden, weight, counted, order
        self._rows = hidden.new_empty(chunk, hidden.shape[1])
        self._wide = _WIDE if hidden.is_cuda else _SMALL
        narrow = _SQUARE if hidden.is_cuda else _SMALL
        self._of_hidden = narrow if hidden.shape[1] % self._wide.wide else self._wide
        properties = torch.cuda.get_device_properties(hidden.device) if hidden.is_cuda else None
        self._programs = properties.multi_processor_count if properties else 3
        self.splits = self._splits(chunk)
        tall = self._of_hidden.tall
        self._parts = hidden.new_empty(
            self.splits * triton.cdiv(chunk, tall) * tall, hidden.shape[1], dtype=torch.float32
        )

    def _splits(self, chunk: int) -> int:
        """Return into how many parts the inner dimension of the hidden states' gradient is split.

        Programs should have equally many tiles; among equals, the fewest parts need least memory.
        """
        tiles = triton.cdiv(chunk, self._of_hidden.tall) * triton.cdiv(self.hidden.shape[1], self._of_hidden.wide)
        largest = max(1, min(_LARGEST_SPLIT, triton.cdiv(self._programs * 2, tiles)))

        def busy(splits: int) -> float:
            return tiles * splits / (triton.cdiv(tiles * splits, self._programs) * self._programs)

        return max(range(1, largest + 1), key=lambda splits: (round(busy(splits) - 0.01 * splits, 3), -splits))

    def logits(self, first: int, out: Tensor) -> Tensor:
        """Write the logits of the rows from `first` on to `out` [rows, vocabulary]; return the hidden states."""
        some = self._rows[: len(out)]
        torch.index_select(self.hidden, 0, self.order[first : first + len(out)], out=some)
        self._launch(self._wide, some, self.weight, out, first, turned=(False, True), limits="rows")
        return some

    def of_hidden(self, first: int, gradient: Tensor, out: Tensor) -> None:
        """Write the gradient of these rows' hidden states to their places in `out` [all rows, width]."""
        tiles, rows, width = self._of_hidden, len(gradient), out.shape[1]
        padded = triton.cdiv(rows, tiles.tall) * tiles.tall
        parts = self._parts[: self.splits * padded]
        self._launch(
            tiles, gradient, self.weight, parts, first, turned=(False, False), limits="rows", splits=self.splits
        )
        _SPREAD.launch(
            (rows,), out, parts, self.order, out, self.counted, first, padded, width,
            splits=self.splits, block=triton.next_power_of_2(width),
        )  # fmt: skip

    def add_of_weight(self, first: int, gradient: Tensor, some: Tensor, total: Tensor) -> None:
        """Add the gradient of the head by these rows to `total` [vocabulary, width]."""
        self._launch(self._wide, gradient, some, total, first, turned=(True, False), limits="inner", add=True)

    def _launch(
        self, tiles: _Tiles, left: Tensor, right: Tensor, result: Tensor, first: int, *, turned: tuple[bool, bool],
        limits: str, add: bool = False, splits: int = 1,
    ) -> None:  # fmt: skip
        left_turned, right_turned = turned
        rows, inner = reversed(left.shape) if left_turned else left.shape
        of_left = [tiles.deep, tiles.tall] if left_turned else [tiles.tall, tiles.deep]
        of_right = [tiles.wide, tiles.deep] if right_turned else [tiles.deep, tiles.wide]
        options = {"num_warps": 8, "num_stages": tiles.stages} if left.is_cuda else {}
        _PRODUCT.launch(
            (self._programs,), left,
            TensorDescriptor.from_tensor(left, of_left), TensorDescriptor.from_tensor(right, of_right),
            TensorDescriptor.from_tensor(result, [tiles.tall, tiles.wide // 2]),
            self.counted, first, rows, result.shape[1], inner,
            tall=tiles.tall, wide=tiles.wide, deep=tiles.deep, left_turned=left_turned, right_turned=right_turned,
            limits_rows=limits == "rows", add=add, splits=splits, programs=self._programs,
            interpreted=not left.is_cuda, **options,
        )  # fmt: skip


def _product(  # type: ignore[no-untyped-def]
    left, right, result, counted, first, rows, columns, inner,
    tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr, left_turned: tl.constexpr, right_turned: tl.constexpr,
    limits_rows: tl.constexpr, add: tl.constexpr, splits: tl.constexpr, programs: tl.constexpr,
    interpreted: tl.constexpr,
):  # fmt: skip
    """result (+)= left @ right. What lies outside a tensor is loaded as zeros and not stored.

    With `splits`, part s of the inner dimension is written to the rows from s times the padded number of rows on.
    """
    group: tl.constexpr = 8
    there = tl.maximum(tl.load(counted).to(tl.int32) - first, 0)
    high = (rows + tall - 1) // tall
    padded = high * tall
    steps = ((inner + deep - 1) // deep + splits - 1) // splits
    if limits_rows:
        high = (tl.minimum(rows, there) + tall - 1) // tall
    else:
        steps = (tl.minimum(inner, there) + deep - 1) // deep
        high = tl.where(steps > 0, high, 0)
    across = (columns + wide - 1) // wide
    tiles = high * across
    for one in tl.range(tl.program_id(0), tiles * splits, programs, flatten=not interpreted):
        split = one // tl.maximum(tiles, 1)
        tile = one % tl.maximum(tiles, 1)
        begin = tile // (group * across) * group
        height = tl.minimum(high - begin, group)
        row = (begin + (tile % (group * across)) % height) * tall
        column = (tile % (group * across)) // height * wide
        sums = tl.full((tall, wide), 0.0, tl.float32)
        for step in range(steps):
            at = (split * steps + step) * deep
            part = left.load([at, row]).T if left_turned else left.load([row, at])
            other = right.load([column, at]).T if right_turned else right.load([at, column])
            sums = tl.dot(part, other, sums)
        lower, upper = tl.split(tl.permute(tl.reshape(sums, (tall, 2, wide // 2)), (0, 2, 1)))
        place = row + split * padded
        if add and not interpreted:  # the memory adds while the program goes on
            result.atomic_add([place, column], lower.to(result.dtype))
            result.atomic_add([place, column + wide // 2], upper.to(result.dtype))
        else:
            if add:
                lower += result.load([place, column]).to(tl.float32)
                upper += result.load([place, column + wide // 2]).to(tl.float32)
            result.store([place, column], lower.to(result.dtype))
            result.store([place, column + wide // 2], upper.to(result.dtype))


def _spread(  # type: ignore[no-untyped-def]
    parts, order, result, counted, first, padded, width, splits: tl.constexpr, block: tl.constexpr
):
    """Add the parts of a row, and write it to its place; zeros for a row that does not count."""
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    counts = (first + row < tl.load(counted)) & (columns < width)
    sums = tl.full((block,), 0.0, tl.float32)
    for split in tl.static_range(splits):
        sums += tl.load(parts + (split * padded + row).to(tl.int64) * width + columns, mask=counts, other=0.0)
    place = tl.load(order + first + row)
    tl.store(result + place * width + columns, sums.to(result.dtype.element_ty), mask=columns < width)


_PRODUCT = Kernel(_product)
_SPREAD = Kernel(_spread)
