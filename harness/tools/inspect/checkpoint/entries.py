"""What a format's reader returns: where each tensor lies in the file, and how its bytes are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from harness.base.strictjson import JsonObject
from harness.tools.inspect.checkpoint.bounded_file import Refused
from harness.tools.inspect.checkpoint.dtypes import DType

__all__ = ["MOST_DIMENSIONS", "Contents", "Entry", "refuse_overlaps"]

MOST_DIMENSIONS = 64
"""numpy's limit. The product of a million dimensions would take minutes, and its digits would fill a screen."""

_LONGEST_NAME = 4096


@dataclass(frozen=True)
class Entry:
    """One tensor of a file. Its region lies inside the file and has the size that dtype and shape need.

    Attributes:
        name: unique in its file.
        shape: row-major, the slowest dimension first.
        offset, size: the region, in bytes from the file's start.
        strides: in elements, one for each dimension; None if the elements lie in row-major order without gaps. With
            strides, the region starts at the first element and ends after the last one.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    size: int
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Raise `Refused` for a name or a shape that no library has, before the product of the shape is computed."""
        if len(self.name) > _LONGEST_NAME:
            reason = (
                f"the tensor {self.name!r:.80} has a name of {len(self.name)} characters, more than {_LONGEST_NAME}"
            )
            raise Refused(reason)
        if len(self.shape) > MOST_DIMENSIONS:
            reason = f"the tensor {self.name!r:.80} has {len(self.shape)} dimensions, more than {MOST_DIMENSIONS}"
            raise Refused(reason)

    @property
    def elements(self) -> int:
        """The number of elements that the shape states; 1 for a scalar."""
        return prod(self.shape)

    @property
    def held(self) -> int:
        """The number of elements that the file holds: all, or 0 for a placeholder that has a shape and no bytes."""
        return self.elements if self.size or not self.dtype.nbytes(self.elements) else 0


@dataclass(frozen=True)
class Contents:
    """The contents of a file.

    Attributes:
        format: its name, such as "safetensors".
        entries: the tensors, in the file's order.
        metadata: JSON values by name.
        remarks: departures from the format that do not prevent reading.
    """

    format: str
    entries: Sequence[Entry]
    metadata: JsonObject = field(default_factory=dict)
    remarks: Sequence[str] = ()


def refuse_overlaps(entries: Sequence[Entry]) -> None:
    """Raise `Refused` if two tensors share bytes. For formats without views."""
    end, before = 0, ""
    for entry in sorted((entry for entry in entries if entry.size), key=lambda entry: (entry.offset, entry.size)):
        if entry.offset < end:
            raise Refused(f"the tensors {before!r} and {entry.name!r} overlap", entry.offset)
        end, before = entry.offset + entry.size, entry.name
