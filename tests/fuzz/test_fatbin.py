"""fatbin images: any entries, compressed contents and PTX."""

from __future__ import annotations

import struct

from hypothesis import given

from tests.fuzz.corpus import cases
from tests.fuzz.damage import damaged, noise
from tests.fuzz.test_elf import CUBIN, examine
from tests.tools.inspect.device_code.test_device_code import FILES as RECORDED
from tests.tools.inspect.device_code.test_device_code import PTX

_LZ4, _ZSTD = 0x2011, 0x8011


def entry(kind: int, content: bytes, flags: int = 0x11, whole: int = 0) -> bytes:
    """An entry as nvcc writes it: compressed if the flags say so."""
    compressed = len(content) if whole else 0
    fields = (kind, 0x101, 64, len(content), compressed, 64, 0, 9, 90, 0, 0, flags, 0, whole)
    return struct.pack("<HHIQIIHHIIIQQQ", *fields) + content


def image(*entries: bytes) -> bytes:
    """A fatbin image of these entries."""
    body = b"".join(entries)
    return b"\x50\xed\x55\xba" + struct.pack("<HHQ", 1, 16, len(body)) + body


def lz4(text: bytes) -> bytes:
    """A text as literals of one LZ4 block."""
    more = len(text) - 15
    return bytes([0xF0]) + b"\xff" * (more // 255) + bytes([more % 255]) + text


PLAIN = image(entry(1, PTX), entry(2, CUBIN[:2048]), entry(8, b"for the linker"))
PACKED = image(entry(1, lz4(PTX), _LZ4, len(PTX)), entry(2, b"\x28\xb5\x2f\xfd", _ZSTD, 100))


@given(damaged([RECORDED["lz4.fatbin"], RECORDED["zstd.fatbin"], PLAIN, PACKED]) | noise(PLAIN[:16], PACKED[:80], PTX))
def test_any_bytes_are_searched(data: bytes) -> None:
    examine(data)


@cases("fatbin")
def test_the_corpus(data: bytes) -> None:
    examine(data)
