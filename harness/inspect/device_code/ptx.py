"""PTX: the text that the driver compiles when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Module", "find_modules", "find_pieces", "read_module"]

# A module begins with its version and target, with only comments between them (PTX ISA, "PTX Module Directives").
_HEAD: Final = re.compile(
    rb"\.version[ \t]+(\d{1,2}\.\d{1,2})(?:\s|//[^\n\0]{0,500}\n){1,50}\.target[ \t]+(sm_(\d{2,3})[af]?)\b"
)
_ENTRY: Final = re.compile(rb"\.entry\s{1,100}([A-Za-z_$%][\w$]{0,4095})")
_PIECE: Final = re.compile(rb"\.visible \.entry|\.target sm_|\.address_size 64")
_NO_TEXT: Final = re.compile(rb"[^\t\n\r\x20-\x7e\x80-\xff]")
_LONGEST: Final = 64 * 2**20


@dataclass(frozen=True)
class Module:
    """One module: version of the language as in "9.0", target as in "sm_90a", kernels in their order."""

    version: str
    target: str
    sm: int
    kernels: tuple[str, ...]
    size: int


def read_module(text: bytes) -> Module | None:
    """The module that a text begins with, white space and comments aside; None where it is none."""
    found = _HEAD.search(text, 0, 65536)
    return None if found is None else _module(found, text[found.start() :])


def find_modules(data: bytes | memoryview, start: int, end: int) -> Iterator[tuple[int, Module]]:
    """The modules between two offsets, each with its own; one ends where no text follows, or the next one begins."""
    heads = list(_HEAD.finditer(data, start, end))
    for at, head in enumerate(heads):
        limit = min(heads[at + 1].start() if at + 1 < len(heads) else end, head.start() + _LONGEST)
        no_text = _NO_TEXT.search(data, head.end(), limit)
        text = bytes(data[head.start() : no_text.start() if no_text else limit])
        yield head.start(), _module(head, text)


def find_pieces(data: bytes | memoryview, start: int, end: int) -> Iterator[int]:
    """Where directives of PTX stand in a stretch that holds no module, as in a program that writes its own."""
    return (found.start() for found in _PIECE.finditer(data, start, end))


def _module(head: re.Match[bytes], text: bytes) -> Module:
    kernels = dict.fromkeys(found[1].decode("ascii", "replace") for found in _ENTRY.finditer(text))
    return Module(head[1].decode(), head[2].decode(), int(head[3]), tuple(kernels), len(text))
