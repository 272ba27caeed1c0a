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
"""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from falsifiers.nanochat.reference.counted_kernels import FINISH, GATHER, ORDER, PRODUCT
from falsifiers.nanochat.reference.head_rows import RowLoss

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
        ORDER.launch(
            (1,), hidden, targets, self._order, self._numbers, rows, of.ignore_index,
            block=_ORDERED if on else 16, **({"num_warps": 8} if on else {}),
        )  # fmt: skip

    def exponentials(self, first: int) -> None:
        """Make the exponentials of the chunk that begins with the row `first`."""
        of, (rows, width), vocabulary = self.of, self.hidden.shape, len(self.weight)
        block = triton.next_power_of_2(width)
        number = first // self._chunk
        capped = of.softcap != 0.0
        GATHER.launch(
            (self._padded,), self.hidden,
            self.hidden, self.weight, self.targets, self._order, self._numbers, self._some, self._rows,
            first, rows, self._chunk, self._padded, width, vocabulary, of.softcap, capped=capped, block=block,
        )  # fmt: skip
        for again in (False, True):
            self._launch(
                self._wide, self._some, self.weight, self.buffer, first, turned=(False, True), limits="rows",
                exponentials=True, again=again, capped=capped, number=1 + number,
            )  # fmt: skip

    def finish(self, first: int, losses: Tensor, grad_hidden: Tensor) -> None:
        """Write the chunk's losses and the gradient of its hidden states, unless that is empty, to their places.

        Then the exponentials and the hidden states are ready for the gradient of the head.
        """
        (rows, width), vocabulary, tiles = self.hidden.shape, len(self.weight), self._of_hidden
        if len(grad_hidden):
            self._launch(
                tiles, self.buffer, self.weight, self._parts, first, turned=(False, False), limits="rows", split=True
            )
        across = triton.cdiv(vocabulary, self._wide.wide)
        FINISH.launch(
            (self._chunk,), self.hidden,
            self.buffer, self._some, self._rows, self._statistics, self._parts, self.weight, self.targets, self.scales,
            self._sum, losses, grad_hidden, self._order, self._numbers, 1 + first // self._chunk, first, rows,
            self._chunk, self._padded, width, vocabulary, self.buffer.stride(0), across, self._slots, self.of.z_loss,
            self.of.label_smoothing,
            scaled=len(self.scales) > 0, mean=self._mean, write=self._write, spread=len(grad_hidden) > 0,
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
        PRODUCT.launch(
            (self._programs,), left,
            TensorDescriptor.from_tensor(left, of_left), TensorDescriptor.from_tensor(right, of_right),
            TensorDescriptor.from_tensor(result, [tiles.tall, tiles.wide // 2]),
            self._rows, self._statistics, self._numbers, number, first, rows, result.shape[1], inner, self._slots,
            self._padded, self.of.softcap,
            tall=tiles.tall, wide=tiles.wide, deep=tiles.deep, left_turned=left_turned, right_turned=right_turned,
            limits_rows=limits == "rows", add=add, split=split, exponentials=exponentials, again=again, capped=capped,
            ragged=result.shape[1] % tiles.wide != 0, programs=self._programs, interpreted=not left.is_cuda, **options,
        )  # fmt: skip
