"""One pass over the bytes of a tensor: its digest, and what its numbers are like."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.inspect.checkpoint.contents import Entry
from harness.inspect.checkpoint.source import Refused, Source

__all__ = ["Scan", "Statistics", "numbers", "refuse_endless_views", "scan"]

_ELEMENTS_AT_ONCE = 1 << 20
"""Numbers that are decoded together; quantised ones take many times their bytes."""

_MOST_VIEWED = 16
"""How many times a file's size the views in it may add up to: tied and sliced weights need little more than once."""

_FEW_BYTES = 1 << 20
"""What views may always add up to: a small file may expand a scalar."""


@dataclass(frozen=True)
class Statistics:
    """What the numbers of a tensor are like; from `minimum` on of the finite ones, None where there are none.

    Attributes:
        nan, infinite, zeros: how many there are; 0.0 and -0.0 are both zeros.
        minimum, maximum: exact, for integers below 2**53.
        mean, deviation: arithmetic mean and standard deviation, accumulated in float64.
    """

    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    deviation: float | None = None


@dataclass(frozen=True)
class Scan:
    """The SHA-256 of a tensor's elements in row-major order, as the file stores them, and their statistics.

    `statistics` is None where nothing here can decode the dtype.
    """

    digest: str
    statistics: Statistics | None


def scan(source: Source, entry: Entry) -> Scan:
    """Read a tensor once, some megabytes at a time."""
    digest, tally = hashlib.sha256(), _Tally()
    for blocks, decoded in _pieces(source, entry):
        digest.update(blocks)
        if decoded is not None:
            tally.add(decoded)
    return Scan(digest.hexdigest(), None if entry.dtype.decode is None else tally.statistics())


def numbers(source: Source, entry: Entry) -> Iterator[NDArray[Any]]:
    """The real numbers of a tensor whose dtype can be decoded, in row-major order, `_ELEMENTS_AT_ONCE` at a time."""
    left: NDArray[Any] | None = None
    for _, decoded in _pieces(source, entry):
        if decoded is None:
            continue
        # Dtypes differ in their blocks, and whoever reads two tensors side by side needs pieces of the same length.
        left = decoded if left is None or not left.size else np.concatenate([left, decoded])
        while left.size >= _ELEMENTS_AT_ONCE:
            yield left[:_ELEMENTS_AT_ONCE]
            left = left[_ELEMENTS_AT_ONCE:]
    if left is not None and left.size:
        yield left


def refuse_endless_views(source: Source, entries: list[Entry]) -> None:
    """Refuse a file whose tensors view its bytes so often that looking at them all would never end."""
    distinct = {(one.offset, one.size, one.shape, one.strides): one for one in entries}
    total = sum(one.elements * one.dtype.block_bytes if one.strides else one.size for one in distinct.values())
    if total > _MOST_VIEWED * source.size + _FEW_BYTES:
        raise Refused(f"the tensors view {total} bytes of a file of {source.size}: too often to look at each", 0)


def _pieces(source: Source, entry: Entry) -> Iterator[tuple[bytes, NDArray[Any] | None]]:
    """The stored bytes of a tensor piece by piece, each with the numbers in it; the first piece may be a prefix."""
    dtype, decode = entry.dtype, entry.dtype.decode
    prefix = b""
    if dtype.prefix and entry.size:
        prefix = source.read(entry.offset, dtype.prefix, entry.name)
        yield prefix, None
    left = entry.elements
    for blocks in _gathered(source, entry) if entry.strides else _stored(source, entry):
        decoded = None
        if decode is not None:
            decoded = decode(blocks, prefix)
            # The last block may hold more numbers than the tensor has; a complex one is two.
            if dtype.partial:
                decoded = decoded[:left]
                left -= decoded.size
        yield blocks, decoded


def _stored(source: Source, entry: Entry) -> Iterator[bytes]:
    dtype = entry.dtype
    step = max(_ELEMENTS_AT_ONCE // dtype.block, 1) * dtype.block_bytes
    start, end = entry.offset + dtype.prefix, entry.offset + entry.size
    for position in range(start, end, step):
        yield source.read(position, min(step, end - position), entry.name)


def _gathered(source: Source, entry: Entry) -> Iterator[bytes]:
    """The elements of a tensor with strides, brought into row-major order; the region is read whole."""
    assert entry.strides is not None
    region = np.frombuffer(source.read(entry.offset, entry.size, entry.name), f"V{entry.dtype.block_bytes}")
    dimensions = [(size, stride) for size, stride in zip(entry.shape, entry.strides, strict=True) if size != 1]
    count = prod(entry.shape)
    for first in range(0, count, _ELEMENTS_AT_ONCE):
        flat = np.arange(first, min(first + _ELEMENTS_AT_ONCE, count), dtype=np.int64)
        at = np.zeros_like(flat)
        for size, stride in reversed(dimensions):
            flat, index = np.divmod(flat, size)
            at += index * stride
        yield region[at].tobytes()


class _Tally:
    """Statistics of numbers that come in pieces; variances are merged as Chan, Golub and LeVeque (1983) do."""

    def __init__(self) -> None:
        self._nan = self._infinite = self._zeros = self._count = 0
        self._minimum, self._maximum = math.inf, -math.inf
        self._mean = self._squares = 0.0

    def add(self, piece: NDArray[Any]) -> None:
        self._zeros += int(piece.size - np.count_nonzero(piece))
        if piece.dtype.kind == "f":
            finite = np.isfinite(piece)
            if not finite.all():
                nan = int(np.count_nonzero(np.isnan(piece)))
                self._nan += nan
                self._infinite += piece.size - int(np.count_nonzero(finite)) - nan
                piece = piece[finite]
        if not piece.size:
            return
        self._minimum = min(self._minimum, float(piece.min()))
        self._maximum = max(self._maximum, float(piece.max()))
        with np.errstate(over="ignore", invalid="ignore"):  # squares of the largest float64 overflow
            mean = float(piece.mean(dtype=np.float64))
            squares = float(np.square(np.subtract(piece, mean, dtype=np.float64)).sum())
            total, delta = self._count + piece.size, mean - self._mean
            self._squares += squares + delta * delta * (self._count * piece.size / total)
            self._mean += delta * (piece.size / total)
        self._count = total

    def statistics(self) -> Statistics:
        counts = {"nan": self._nan, "infinite": self._infinite, "zeros": self._zeros}
        if not self._count:
            return Statistics(**counts)
        deviation = math.sqrt(self._squares / self._count) if self._squares < math.inf else math.inf
        return Statistics(**counts, minimum=self._minimum, maximum=self._maximum, mean=self._mean, deviation=deviation)
