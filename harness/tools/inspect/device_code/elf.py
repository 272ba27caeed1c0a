"""Reads ELF images with machine code for NVIDIA GPUs, as NVIDIA's compilers write them.

The layout is ELF64 (gABI, chapter 4). Machine 190 is CUDA. Images of ABI version 8 (CUDA 13) hold the compute
capability in bits 8 to 15 of e_flags, older images in bits 0 to 7. A kernel's symbol has 0x10 in st_other. Both facts
are from LLVM's BinaryFormat/ELF.h. The note .note.nv.cuinfo repeats the capability. The note .note.nv.tkinfo holds the
options of ptxas, such as `-arch sm_90a`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from harness.tools.inspect.budget import Budget

__all__ = ["MAGIC", "Cubin", "Malformed", "claimed_size", "read_cubin"]

MAGIC: Final = b"\x7fELF\x02\x01\x01"
"""The first bytes of a 64-bit little-endian ELF file. `read_cubin` checks whether it is for CUDA."""

_CUDA_MACHINE: Final = 190
_FUNCTION, _ENTRY = 2, 0x10
_SYMBOL_TABLE, _NO_BITS, _NOTE = 2, 8, 7
_CUINFO, _TKINFO = 1000, 2000
_LONGEST_NAME: Final = 4096
_MOST_SYMBOLS: Final = 1_000_000
_LONGEST_NOTES: Final = 65536
_SECTION_SIZE, _SEGMENT_SIZE = 64, 56


class Malformed(ValueError):
    """The bytes are not an image of the expected kind, or the image ends too early. The text says which."""


@dataclass(frozen=True)
class Cubin:
    """One image of machine code.

    Attributes:
        sm: compute capability, such as 121, from e_flags.
        noted_sm: the compute capability from .note.nv.cuinfo; None without that note.
        target: the -arch option of ptxas, such as "sm_90a"; None without .note.nv.tkinfo.
        kernels: names of the kernels, in the order of the symbol table.
        size: bytes from the ELF header to the last byte that a header or section claims.
    """

    sm: int
    noted_sm: int | None
    target: str | None
    kernels: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int
    entry_size: int


def read_cubin(data: memoryview, budget: Budget) -> Cubin:
    """Read the image at the start of `data`. Other bytes may follow it.

    Raises:
        Malformed: it is no ELF image for CUDA, or its tables lie past the end.
        Refused: its sections, notes and symbols exceed the budget.
    """
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise Malformed("no 64-bit little-endian ELF header")
    machine = _unpack("<H", data, 18)[0]
    if machine != _CUDA_MACHINE:
        raise Malformed(f"ELF for machine {machine}, not for CUDA ({_CUDA_MACHINE})")
    program_table, section_table, flags = _unpack("<QQI", data, 32)
    program_size, programs, section_size, sections, _names = _unpack("<HHHHH", data, 54)
    abi = data[8]
    if sections and section_size != 64:
        raise Malformed(f"section headers of {section_size} bytes instead of 64")
    budget.work(4 * sections)
    table = [_section(data, section_table + 64 * index) for index in range(sections)]
    ends = [64, section_table + 64 * sections, program_table + program_size * programs]
    ends += [section.offset + section.size for section in table if section.kind != _NO_BITS]
    if max(ends) > len(data):
        raise Malformed(f"cut short: {len(data)} of {max(ends)} bytes")
    noted, target = None, None
    # Many sections of a hostile file may name the same bytes. Each offset is read once.
    for section in {section.offset: section for section in table if section.kind == _NOTE}.values():
        if section.size <= _LONGEST_NOTES:
            for kind, content in _notes(data[section.offset : section.offset + section.size]):
                budget.work(1 + len(content) // 512)
                if kind == _CUINFO and len(content) >= 4:
                    noted = int(struct.unpack_from("<H", content, 2)[0])
                elif kind == _TKINFO and (option := re.search(rb"-arch (sm_\d+[af]?)\b", content)):
                    target = option[1].decode()
    return Cubin(
        sm=flags >> 8 & 0xFF if abi >= 8 else flags & 0xFF,
        noted_sm=noted,
        target=target,
        kernels=tuple(dict.fromkeys(_kernels(data, table, budget))),
        size=max(ends),
    )


def claimed_size(view: memoryview) -> int:
    """The size in bytes of the 64-bit ELF file at the start of `view`, as its own headers state it.

    The section table tells where the file ends (gABI, chapter 4). A stripped file without one tells it by its program
    headers. The file may be shorter than this.
    """
    return max(_ends(view))


def _ends(view: memoryview) -> Iterator[int]:
    """Offsets in bytes where header, tables and contents of an ELF file end, as far as the present bytes tell."""
    yield 64
    if len(view) < 64:
        return
    segments_at, sections_at = struct.unpack_from("<QQ", view, 32)
    segment_size, segments, section_size, sections = struct.unpack_from("<HHHH", view, 54)
    yield segments_at + segments * segment_size
    yield sections_at + sections * section_size
    if sections and section_size == _SECTION_SIZE:
        for at in _rows(view, sections_at, sections, _SECTION_SIZE):
            kind, offset, size = struct.unpack_from("<I16xQQ", view, at + 4)
            # A section without bits takes no room, whatever size it states. The first section (kind 0) is a dummy.
            if kind not in (0, _NO_BITS):
                yield offset + size
    elif segment_size == _SEGMENT_SIZE:
        for at in _rows(view, segments_at, segments, _SEGMENT_SIZE):
            offset, size = struct.unpack_from("<Q16xQ", view, at + 8)
            yield offset + size


def _rows(view: memoryview, start: int, count: int, size: int) -> Iterator[int]:
    """Offsets of those rows of a table that lie inside the file."""
    yield from range(start, min(start + count * size, len(view) - size + 1), size)


def _unpack(layout: str, data: memoryview, offset: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout, data, offset)
    except (struct.error, OverflowError) as error:
        raise Malformed(f"cut short: {len(data)} bytes, and a header at byte {offset}") from error


def _section(data: memoryview, at: int) -> _Section:
    _name, kind, _flags, _address, offset, size, link, _info, _align, entry = _unpack("<IIQQQQIIQQ", data, at)
    return _Section(kind, offset, size, link, entry)


def _kernels(data: memoryview, table: list[_Section], budget: Budget) -> Iterator[str]:
    # An ELF file has at most one symbol table (gABI, "Sections").
    for section in [section for section in table if section.kind == _SYMBOL_TABLE][:1]:
        if section.entry_size != 24 or section.link >= len(table):
            raise Malformed("a symbol table without names, or with entries that are not of 24 bytes")
        count = section.size // 24
        if count > _MOST_SYMBOLS:
            raise Malformed(f"{count} symbols")
        budget.work(count)
        names = table[section.link]
        texts = data[names.offset : names.offset + names.size]
        for index in range(count):
            name, info, other = struct.unpack_from("<IBB", data, section.offset + 24 * index)
            if info & 0xF == _FUNCTION and other & _ENTRY:
                text = bytes(texts[name : name + _LONGEST_NAME]).split(b"\0", 1)[0].decode("utf-8", "replace")
                budget.keep(len(text), 2)
                yield text


def _notes(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at + 12 <= len(data):
        name, content, kind = struct.unpack_from("<III", data, at)
        start = at + 12 + (name + 3) // 4 * 4
        yield kind, data[start : start + content]
        at = start + (content + 3) // 4 * 4
