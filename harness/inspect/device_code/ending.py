"""Whether a file ends before its own headers say that it does: what was in the missing part, nobody can tell."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from harness.inspect.device_code import elf, fatbin

__all__ = ["cut_short"]

_SECTION_SIZE, _SEGMENT_SIZE = 64, 56
_NO_BITS = 8


def cut_short(view: memoryview) -> str | None:
    """How much of the executable, library, cubin or fatbin image at the start of `view` is there, where not all is.

    Of an ELF file the section table tells its end (gABI, chapter 4), and where that was stripped the program headers.
    None for a file that is whole, and for one of another kind, which does not tell.
    """
    beginning = bytes(view[:16])
    if beginning.startswith(elf.MAGIC):
        end = max(_ends(view), default=0)
    elif beginning.startswith(fatbin.MAGIC) and fatbin.is_header(view) and len(beginning) == 16:
        header, rest = struct.unpack_from("<HQ", beginning, 6)
        end = header + rest
    else:
        return None
    return f"cut short: {len(view):,} of {end:,} bytes" if end > len(view) else None


def _ends(view: memoryview) -> Iterator[int]:
    """Where header, tables and contents of an ELF file end, as far as what is there tells."""
    yield 64
    if len(view) < 64:
        return
    segments_at, sections_at = struct.unpack_from("<QQ", view, 32)
    segment_size, segments, section_size, sections = struct.unpack_from("<HHHH", view, 54)
    yield segments_at + segments * segment_size
    yield sections_at + sections * section_size
    if sections and section_size == _SECTION_SIZE:
        for at in _inside(view, sections_at, sections, _SECTION_SIZE):
            kind, offset, size = struct.unpack_from("<I16xQQ", view, at + 4)
            # A section without bits takes no room, whatever its size; neither does the first one, which is none.
            if kind not in (0, _NO_BITS):
                yield offset + size
    elif segment_size == _SEGMENT_SIZE:
        for at in _inside(view, segments_at, segments, _SEGMENT_SIZE):
            offset, size = struct.unpack_from("<Q16xQ", view, at + 8)
            yield offset + size


def _inside(view: memoryview, start: int, count: int, size: int) -> Iterator[int]:
    """Where those rows of a table begin that lie inside the file."""
    yield from range(start, min(start + count * size, len(view) - size + 1), size)
