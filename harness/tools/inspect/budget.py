"""One counter for all work that an untrusted file causes: opcodes, sections, entries and decompressed bytes alike.

    budget = Budget.of(descriptor)
    budget.work()  # before each step of a loop whose length the file states
    budget.keep(len(name))  # before a value of this size is made

A small file can state large counts, name one part many times, or be compressed well. Each part alone may be within its
bounds. The counter bounds the sum, so that the same file always ends at the same place, whatever machine reads it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Self, final

__all__ = ["Budget", "Refused"]

_LEAST: Final = 4 << 30
"""Units for a file of any size. Zstandard decompresses this many bytes in a few seconds."""
_PER_BYTE: Final = 512
"""Further units for each byte that the file occupies on the disk, of the first `_SMALL`. A tensor costs 155,000 units
in PyTorch's zip, and about 70,000 in the other formats, so all formats may hold 100,000 tensors of one element."""
_SMALL: Final = 32 << 20
_PER_FURTHER_BYTE: Final = 4
_STEP: Final = 1024
"""Units of one step of a loop in Python. It takes about as long as the decompression of as many bytes."""
_KEPT: Final = 16
"""Units of a byte that stays in memory, so that the smallest budget bounds memory to 256 MiB."""
_OBJECT: Final = 100
"""Bytes of a Python object beside its content, and of the reference to it."""


class Refused(Exception):
    """A file cannot be read, or not to its end.

    Attributes:
        reason: what is wrong, in one sentence without a full stop.
        offset: the byte where the defect shows, from the start of the file; None if there is no such byte.
        path: the file.
    """

    def __init__(self, reason: str, offset: int | None = None, path: Path | None = None) -> None:
        where = "" if path is None else f"{path}: "
        super().__init__(f"{where}{reason}" if offset is None else f"{where}{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset
        self.path = path


@final
class Budget:
    """What is left of the work that one inspection may do. All methods raise `Refused` if too little is left."""

    def __init__(self, occupied: int = 0) -> None:
        """Start with the budget of a file that occupies this many bytes."""
        small = min(occupied, _SMALL)
        self._left = _LEAST + _PER_BYTE * small + _PER_FURTHER_BYTE * (occupied - small)

    @classmethod
    def of(cls, descriptor: int) -> Self:
        """Return the budget of an open file. The holes of a sparse file add nothing to it."""
        status = os.fstat(descriptor)
        return cls(min(status.st_size, status.st_blocks * 512))

    def work(self, steps: int = 1) -> None:
        """Take as much as these steps of a loop need."""
        self.make(steps * _STEP)

    def keep(self, size: int, values: int = 1) -> None:
        """Take as much as values need that stay in memory, of `size` bytes in all."""
        self.make((size + values * _OBJECT) * _KEPT)

    def make(self, size: int) -> None:
        """Take as much as bytes need that are decompressed, copied or searched once."""
        self._left -= size
        if self._left < 0:
            raise Refused("reading it needs more work or memory than a file of its size may cause")
