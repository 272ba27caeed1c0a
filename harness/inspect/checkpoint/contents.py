"""What a format's reader hands on: where each tensor lies and how its bytes are to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from harness.inspect.checkpoint.dtypes import DType
from harness.inspect.checkpoint.source import Refused

__all__ = ["Contents", "Entry", "refuse_overlaps"]


@dataclass(frozen=True)
class Entry:
    """One tensor of a file; its region is inside the file, and holds what dtype and shape need.

    Attributes:
        name: unique in its file.
        shape: row-major, the slowest dimension first.
        offset, size: the region, in bytes from the file's start.
        strides: in elements, one a dimension; None where the elements lie in row-major order without gaps. With
            strides, the region starts at the first element and ends with the last one.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    size: int
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        """How many numbers the shape says; 1 for a scalar."""
        return prod(self.shape)

    @property
    def held(self) -> int:
        """How many of them the file holds: all, or none where a placeholder names a shape and brings no bytes."""
        return self.elements if self.size or not self.dtype.nbytes(self.elements) else 0


@dataclass(frozen=True)
class Contents:
    """A file's tensors in the file's order, its metadata, and how it departs from its format all the same."""

    format: str
    entries: Sequence[Entry]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = ()


def refuse_overlaps(entries: Sequence[Entry]) -> None:
    """Refuse two tensors that share bytes, where the format has no such thing as a view."""
    end, before = 0, ""
    for entry in sorted((one for one in entries if one.size), key=lambda one: (one.offset, one.size)):
        if entry.offset < end:
            raise Refused(f"the tensors {before!r} and {entry.name!r} overlap", entry.offset)
        end, before = entry.offset + entry.size, entry.name
