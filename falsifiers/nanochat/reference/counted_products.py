"""A fused loss's chunks of rows on sm_90: exponentials instead of logits, and no work for rows that are ignored.

A chunk's logits never reach memory. The product that makes a logit l writes exp(l - r), where r is the row's reference,
and adds up the row's sum Z. A probability is exp(l - r) / Z. So the gradient of the hidden states is a product with the
exponentials whose rows are divided by Z afterwards. The gradient of the head is a product with hidden states that are
divided by Z before. The element of the target is exp(l - r) - Z. The second product reads it, rounded. The first one
reads exp(l - r), and the target's row of the head times what that lacks is added in float32.

Label smoothing takes the same number from the gradient of each of a row's logits. So the gradient of the hidden states
lacks a multiple of the sum of the head's rows, and each row of the head's gradient lacks one sum of hidden states.

The reference is the target's logit, a dot product that is made first. Where the loss is below 50, no exponential is too
large for float32, nor for bfloat16, which has the same exponents. If a tile's sum is too large, the product is made
again, with the row's largest logit as the reference. The kernel reads on the GPU whether it has to.

The rows that count come first, and how many there are is known to the device alone. A kernel reads that number and
leaves out the tiles behind it, so the host never waits for it.

The kernel of a product has as many programs as the GPU has multiprocessors. They share out the tiles of a result, and
the loop over a tile's parts runs on into the next tile, so that loads never pause. A result with fewer tiles than
programs is made in parts along its inner dimension, which are added up in a fixed order: equal inputs have equal
results.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from falsifiers.nanochat.reference.head_rows import RowLoss
from falsifiers.nanochat.reference.kernel import Kernel

__all__ = ["Counted", "fits"]

_ALIGNED = 8
"""Numbers in 16 bytes, of which a row of a tensor that is loaded by tiles must be a multiple."""
_ORDERED = 2048
"""Targets of a step of the kernel that puts rows in order."""


def fits(hidden: Tensor, weight: Tensor, of: RowLoss) -> bool:
    """Return whether the kernels can make this loss: bfloat16 with rows of 16 bytes on sm_90.

    The gradient of a capped logit depends on the logit, so smoothing does not take the same from all of them.
    """
    if hidden.dtype is not torch.bfloat16 or not hidden.is_cuda or not len(hidden):
        return False
    return (
        not (of.label_smoothing and of.softcap)
        and weight.shape[1] % _ALIGNED == 0
        and weight.data_ptr() % 16 == 0
        and weight.is_contiguous()
        and torch.cuda.get_device_capability(hidden.device) == (9, 0)
    )


@dataclass(frozen=True)
class _Tiles:
    """Sizes of the tiles of a product."""

    tall: int
    wide: int
    deep: int
    stages: int


_WIDE = _Tiles(128, 256, 64, 3)
_TALL = _Tiles(256, 128, 64, 3)
_SQUARE = _Tiles(128, 128, 64, 4)
_SMALL = _Tiles(16, 32, 16, 1)
"""For an interpreter, which needs no large ones."""


class Counted:
    """The chunks of one call. All rows behind the counted ones are left out."""

    def __init__(
        self, hidden: Tensor, weight: Tensor, targets: Tensor, scales: Tensor, of: RowLoss, buffer: Tensor, *,
        mean: bool, write: bool,
    ) -> None:  # fmt: skip
        """Args:
        hidden, weight, targets: [rows, width], [vocabulary, width] and [rows].
        scales: [rows], what each row's loss is multiplied by; empty if that is 1.
        buffer: memory of a chunk's exponentials [rows of a chunk, vocabulary], whose rows begin at multiples of 16
            bytes.
        mean: divide the losses by the number of rows that count.
        write: make gradients.
        """
        self.hidden, self.weight, self.targets, self.scales = hidden.contiguous(), weight, targets, scales
        self.of, self.buffer, self._mean, self._write = of, buffer, mean, write
        (rows, width), (chunk, vocabulary), on = hidden.shape, buffer.shape, hidden.is_cuda
        self._chunk = chunk
        self._wide = _WIDE if on else _SMALL
        narrow = width % _WIDE.wide != 0
        self._of_hidden = (_SQUARE if narrow else _WIDE) if on else _SMALL
        self._of_weight = (_TALL if narrow else _WIDE) if on else _SMALL
        self._programs = torch.cuda.get_device_properties(hidden.device).multi_processor_count if on else 3
        tiles = self._of_hidden
        across = triton.cdiv(width, tiles.wide)
        of_all = triton.cdiv(chunk, tiles.tall) * across
        self._slots = (self._programs // of_all + 1) * of_all
        self._padded = triton.cdiv(chunk, self._wide.tall) * self._wide.tall
        self._some = hidden.new_empty(chunk, width)
        statistics = 2 * triton.cdiv(vocabulary, self._wide.wide) * self._padded
        parts = self._slots // across * tiles.tall
        self._statistics = hidden.new_empty(statistics, dtype=torch.float32)
        self._parts = hidden.new_empty(parts, width, dtype=torch.float32)
        self._rows = hidden.new_empty(2, self._padded, dtype=torch.float32)
        smoothed = of.label_smoothing != 0.0
        self._sum = weight.sum(0, dtype=torch.float32) if smoothed else weight.new_empty(0, dtype=torch.float32)
        self._order = torch.empty(rows, device=hidden.device, dtype=torch.int32)
        self._numbers = torch.zeros(1 + triton.cdiv(rows, chunk), device=hidden.device, dtype=torch.int32)
        _ORDER.launch(
            (1,), hidden, targets, self._order, self._numbers, rows, of.ignore_index,
            block=_ORDERED if on else 16, **({"num_warps": 8} if on else {}),
        )  # fmt: skip

    def exponentials(self, first: int) -> None:
        """Make the exponentials of the chunk that begins with the row `first`."""
        of, (rows, width), vocabulary = self.of, self.hidden.shape, len(self.weight)
        block = triton.next_power_of_2(width)
        number = first // self._chunk
        capped = of.softcap != 0.0
        _GATHER.launch(
            (self._padded,), self.hidden,
            self.hidden, self.weight, self.targets, self._order, self._numbers, self._some, self._rows,
            first, rows, self._chunk, self._padded, width, vocabulary, of.softcap, capped=capped, block=block,
        )  # fmt: skip
        for again in (False, True):
            self._launch(
                self._wide, self._some, self.weight, self.buffer, first, turned=(False, True), limits="rows",
                exponentials=True, again=again, capped=capped, number=1 + number,
            )  # fmt: skip

    def finish(self, first: int, losses: Tensor, of_hidden: Tensor) -> None:
        """Write the chunk's losses and the gradient of its hidden states, unless that is empty, to their places.

        Then the exponentials and the hidden states are ready for the gradient of the head.
        """
        (rows, width), vocabulary, tiles = self.hidden.shape, len(self.weight), self._of_hidden
        if len(of_hidden):
            self._launch(
                tiles, self.buffer, self.weight, self._parts, first, turned=(False, False), limits="rows", split=True
            )
        across = triton.cdiv(vocabulary, self._wide.wide)
        _FINISH.launch(
            (self._chunk,), self.hidden,
            self.buffer, self._some, self._rows, self._statistics, self._parts, self.weight, self.targets, self.scales,
            self._sum, losses, of_hidden, self._order, self._numbers, 1 + first // self._chunk, first, rows,
            self._chunk, self._padded, width, vocabulary, self.buffer.stride(0), across, self._slots, self.of.z_loss,
            self.of.label_smoothing,
            scaled=len(self.scales) > 0, mean=self._mean, write=self._write, spread=len(of_hidden) > 0,
            capped=self.of.softcap != 0.0, smoothed=len(self._sum) > 0, tall=tiles.tall, wide=tiles.wide,
            programs=self._programs, block=triton.next_power_of_2(width), across=triton.next_power_of_2(across),
        )  # fmt: skip

    def add_of_weight(self, first: int, total: Tensor) -> None:
        """Add the gradient of the head by the chunk's rows to `total` [vocabulary, width]; the first one is stored."""
        self._launch(
            self._of_weight, self.buffer, self._some, total, first, turned=(True, False), limits="inner", add=first > 0
        )

    def smooth_of_weight(self, total: Tensor) -> None:
        """Take from each row of `total`, the gradient of the head, what label smoothing takes from all of them."""
        weights = (self.targets != self.of.ignore_index).float()
        if len(self.scales):
            weights *= self.scales
        elif self._mean:
            weights /= weights.sum().clamp_min(1)
        weights *= self.of.label_smoothing / len(self.weight)
        summed = torch.zeros_like(self._sum)
        for start in range(0, len(weights), self._chunk):
            rows = slice(start, start + self._chunk)
            summed.addmv_(self.hidden[rows].float().T, weights[rows])
        total -= summed

    def _launch(
        self, tiles: _Tiles, left: Tensor, right: Tensor, result: Tensor, first: int, *, turned: tuple[bool, bool],
        limits: str, add: bool = False, split: bool = False, exponentials: bool = False, again: bool = False,
        capped: bool = False, number: int = 0,
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
            self._rows, self._statistics, self._numbers, number, first, rows, result.shape[1], inner, self._slots,
            self._padded, self.of.softcap,
            tall=tiles.tall, wide=tiles.wide, deep=tiles.deep, left_turned=left_turned, right_turned=right_turned,
            limits_rows=limits == "rows", add=add, split=split, exponentials=exponentials, again=again, capped=capped,
            ragged=result.shape[1] % tiles.wide != 0, programs=self._programs, interpreted=not left.is_cuda, **options,
        )  # fmt: skip


_maximum = tl.standard._elementwise_max  # type: ignore[attr-defined]
_sum = tl.standard._sum_combine  # type: ignore[attr-defined]
_LOG2E = tl.constexpr(1.4426950408889634)
_TOO_LARGE = tl.constexpr(2.0**80)
"""A tile's sum of exponentials, 55 as a logarithm, after which the product is made again."""
_BETWEEN = tl.constexpr(4)
"""Steps of a tile's inner dimension that take as long as to end a tile and to begin another one."""
_FAR = tl.constexpr(40.0)
"""Rows whose largest logit is this far above the reference then take it as their reference. A tile with a sum that is
too large has such a row, as it has less than e^15 columns."""


def _order(targets, order, numbers, rows, ignored, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the rows that count, in their order, and the others from the end on; and how many count."""
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
    hidden, weight, targets, order, numbers, some, of_rows, first, rows, chunk, padded, width, vocabulary, softcap,
    capped: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Copy a row's hidden state to its place in the chunk, and write its target's logit; zeros if it does not count."""
    row = tl.program_id(0)
    counts = (first + row < tl.load(numbers)) & (row < chunk)
    place = tl.load(order + first + row, mask=first + row < rows, other=0).to(tl.int64)
    target = tl.load(targets + place)
    columns = tl.arange(0, block)
    state = tl.load(hidden + place * width + columns, mask=counts & (columns < width), other=0.0)
    tl.store(some + row.to(tl.int64) * width + columns, state, mask=(columns < width) & (row < chunk))
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
    """result (+)= left @ right, or its exponentials. What lies outside a tensor is loaded as zeros and not stored.

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
        some = tl.maximum(tiles, 1)
        parts = tl.maximum(tl.minimum(programs // some, slots // some - 1), 1)
        rest = programs - parts * some
        last = 0
        if rest > 0:
            turns = (some + rest - 1) // rest * parts
            last = tl.maximum(steps - turns * _BETWEEN, 0) // (1 + turns)
        if begin_tile >= parts * some:
            begin_tile -= parts * some
            part = parts
            stride = rest
            begin_step = steps - last
            steps = last
        else:
            each = (steps - last + parts - 1) // parts
            part = begin_tile // some
            begin_tile = begin_tile % some
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
            one = left.load([at, row]).T if left_turned else left.load([row, at])
            other = right.load([column, at]).T if right_turned else right.load([at, column])
            sums = tl.dot(one, other, sums)
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
        for half in tl.static_range(2):  # each needs registers of its own
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
            if add and not interpreted:  # the memory adds while the program goes on
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
    exponentials, some, of_rows, statistics, parts, weight, targets, scales, sum_of_weight, losses, result, order,
    numbers, number, first, rows, chunk, padded, width, vocabulary, row_stride, column_tiles, slots, z_loss, smoothing,
    scaled: tl.constexpr, mean: tl.constexpr, write: tl.constexpr, spread: tl.constexpr,
    capped: tl.constexpr, smoothed: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr, programs: tl.constexpr,
    block: tl.constexpr, across: tl.constexpr,
):  # fmt: skip
    """Write a row's loss, its hidden state's gradient, the element of its target, and its hidden state divided.

    The product took the target's exponential as it was. What it lacks of the target's part is added in float32.
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
    at = some + row.to(tl.int64) * width + columns
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
        tl.store(at, (state * by).to(some.dtype.element_ty), mask=inside)


_ORDER = Kernel(_order, varying=("rows", "ignored"))
_GATHER = Kernel(_gather, varying=("first", "rows", "chunk", "vocabulary"))
_PRODUCT = Kernel(_product, varying=("number", "first", "rows", "columns", "inner", "slots"))
_FINISH = Kernel(
    _finish, varying=("number", "first", "rows", "chunk", "vocabulary", "row_stride", "column_tiles", "slots")
)
