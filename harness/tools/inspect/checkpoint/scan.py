"""One pass over the bytes of a tensor: its digest and the statistics of its numbers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.tools.inspect.checkpoint.bounded_file import BoundedFile, Refused
from harness.tools.inspect.checkpoint.entries import Entry

__all__ = ["Statistics", "numbers", "refuse_endless_views", "scan"]

_ELEMENTS_AT_ONCE = 1 << 20
"""How many numbers are decoded together. Decoded numbers of a quantised dtype take many times the stored bytes."""

_STEPS_OF_A_SCAN = 50
"""Steps for the calls into numpy that even an empty tensor needs."""

_MOST_VIEWED = 16
"""The largest total size of all views, as a multiple of the file's size. Tied and sliced weights need little over 1."""

_FEW_BYTES = 1 << 20
"""Bytes that views may always add up to. A small file may expand a scalar."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of the numbers of a tensor.

    Attributes:
        nan, infinite, zeros: counts. 0.0 and -0.0 are both zeros.
        minimum, maximum: of the finite numbers; exact for integers below 2**53. None if no number is finite.
        mean, deviation: arithmetic mean and standard deviation of the finite numbers, accumulated in float64. None if
            no number is finite.
    """

    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    deviation: float | None = None


def scan(source: BoundedFile, entry: Entry) -> tuple[str, Statistics | None]:
    """Read a tensor once, a few megabytes at a time.

    Returns:
        The SHA-256 of the stored elements in row-major order, and the statistics; None if the dtype cannot be decoded.
    """
    source.budget.work(_STEPS_OF_A_SCAN)
    digest, tally = hashlib.sha256(), _Tally()
    for blocks, decoded in _pieces(source, entry):
        digest.update(blocks)
        if decoded is not None:
            tally.add(decoded)
    return digest.hexdigest(), None if entry.dtype.decode is None else tally.statistics()


def numbers(source: BoundedFile, entry: Entry) -> Iterator[NDArray[Any]]:
    """Yield the real numbers of a decodable tensor in row-major order, `_ELEMENTS_AT_ONCE` at a time."""
    left: NDArray[Any] | None = None
    for _, decoded in _pieces(source, entry):
        if decoded is None:
            continue
        # Block sizes differ between dtypes. A comparison of two tensors needs pieces of the same length.
        left = decoded if left is None or not left.size else np.concatenate([left, decoded])
        while left.size >= _ELEMENTS_AT_ONCE:
            yield left[:_ELEMENTS_AT_ONCE]
            left = left[_ELEMENTS_AT_ONCE:]
    if left is not None and left.size:
        yield left


def refuse_endless_views(source: BoundedFile, entries: list[Entry]) -> None:
    """Raise `Refused` if the tensors view the file's bytes so often that reading them all would take for ever."""
    distinct = {(entry.offset, entry.size, entry.shape, entry.strides): entry for entry in entries}
    total = sum(
        entry.elements * entry.dtype.block_bytes if entry.strides else entry.size for entry in distinct.values()
    )
    if total > _MOST_VIEWED * source.size + _FEW_BYTES:
        raise Refused(f"the tensors view {total} bytes of a file of {source.size}: too often to read each", 0)


def _pieces(source: BoundedFile, entry: Entry) -> Iterator[tuple[bytes, NDArray[Any] | None]]:
    """Yield the stored bytes of a tensor in pieces, each with its numbers. A prefix is a piece without numbers."""
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
            # The last block may hold more numbers than the tensor has.
            if dtype.partial:
                decoded = decoded[:left]
                left -= decoded.size
        yield blocks, decoded


def _stored(source: BoundedFile, entry: Entry) -> Iterator[bytes]:
    dtype = entry.dtype
    step = max(_ELEMENTS_AT_ONCE // dtype.block, 1) * dtype.block_bytes
    start, end = entry.offset + dtype.prefix, entry.offset + entry.size
    for position in range(start, end, step):
        yield source.read(position, min(step, end - position), entry.name)


def _gathered(source: BoundedFile, entry: Entry) -> Iterator[bytes]:
    """Yield the elements of a tensor with strides in row-major order. The region is read whole."""
    assert entry.strides is not None
    source.budget.make(entry.size)  # many tensors can view one region
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
    """Accumulates statistics over pieces. Variances are merged by the formula of Chan, Golub and LeVeque (1983)."""

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
