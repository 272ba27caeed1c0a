"""PTX, the text that the driver compiles when a program loads it; and signs that a program makes code when it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Module", "find_modules", "find_pieces", "read_module", "signs"]

# A module begins with its version and target, with only comments between them (PTX ISA, "PTX Module Directives").
_HEAD: Final = re.compile(
    rb"\.version[ \t]+\d{1,2}\.\d{1,2}(?:\s|//[^\n\0]{0,500}\n){1,50}\.target[ \t]+(sm_(\d{2,3})[af]?)\b"
)
_ENTRY: Final = re.compile(rb"\.entry\s{1,100}([A-Za-z_$%][\w$]{0,4095})")
_PIECE: Final = re.compile(rb"\.visible \.entry|\.target sm_|\.address_size 64")
_NO_TEXT: Final = re.compile(rb"[^\t\n\r\x20-\x7e\x80-\xff]")
_LONGEST: Final = 64 * 2**20
_PIECES_SHOWN: Final = 3
_COMPILERS: Final = re.compile(
    rb"nvrtcCompileProgram|libnvrtc\.so|nvPTXCompilerCompile|nvvmCompileProgram|libnvvm\.so|libnvJitLink\.so"
)
"""NVIDIA's compilers that a program can contain or load: NVRTC, the PTX compiler, NVVM and nvJitLink."""


@dataclass(frozen=True)
class Module:
    """One PTX module.

    Attributes:
        target: such as "sm_90a".
        sm: the number in the target, such as 90.
        kernels: their names, in the order of the text.
        size: in bytes.
    """

    target: str
    sm: int
    kernels: tuple[str, ...]
    size: int


def read_module(text: bytes) -> Module | None:
    """Return the module at the start of a text, after white space and comments; None if there is none."""
    head = _HEAD.search(text, 0, 65536)
    return None if head is None else _module(head, text[head.start() :])


def find_modules(data: bytes | memoryview, start: int, end: int) -> Iterator[tuple[int, Module]]:
    """Yield the modules between two offsets, each with its offset.

    A module ends at the first byte that is no text, or where the next module begins.
    """
    heads = list(_HEAD.finditer(data, start, end))
    for at, head in enumerate(heads):
        limit = min(heads[at + 1].start() if at + 1 < len(heads) else end, head.start() + _LONGEST)
        no_text = _NO_TEXT.search(data, head.end(), limit)
        text = bytes(data[head.start() : no_text.start() if no_text else limit])
        yield head.start(), _module(head, text)


def find_pieces(data: bytes | memoryview, start: int, end: int) -> Iterator[int]:
    """Yield the offsets of PTX directives in a stretch without modules; a program that writes PTX contains some."""
    return (match.start() for match in _PIECE.finditer(data, start, end))


def signs(view: memoryview, pieces: Sequence[int]) -> Iterator[str]:
    """Signs that a program makes device code when it runs, one sentence each.

    A sign proves nothing: a program may never use a text, and never call a compiler whose name it contains. But with a
    sign, the code in the file may not be all the code that its program runs.

    Args:
        view: the whole file.
        pieces: offsets of PTX directives that belong to no module.
    """
    if pieces:
        places = ", ".join(map(str, pieces[:_PIECES_SHOWN])) + (", …" if len(pieces) > _PIECES_SHOWN else "")
        yield (
            f"PTX in pieces that are no module, at byte {places}: a program with such text may write PTX when it runs, "
            "which only the driver's cache or the process itself can show"
        )
    compilers = dict.fromkeys(name[0].decode() for name in _COMPILERS.finditer(view))
    if compilers:
        yield f"the names {', '.join(compilers)}: a program that calls such a compiler makes code when it runs"


def _module(head: re.Match[bytes], text: bytes) -> Module:
    kernels = dict.fromkeys(match[1].decode("ascii", "replace") for match in _ENTRY.finditer(text))
    return Module(head[1].decode(), int(head[2]), tuple(kernels), len(text))
