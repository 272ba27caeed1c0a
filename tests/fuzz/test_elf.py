"""ELF images for NVIDIA GPUs: any tables, notes, symbols and names."""

from __future__ import annotations

import struct
from contextlib import suppress

from hypothesis import given

from harness.tools.inspect.budget import Refused
from harness.tools.inspect.device_code import DeviceCode, scan
from harness.tools.inspect.device_code.elf import MAGIC
from harness.tools.inspect.device_code.images import cut_short
from tests.fuzz.corpus import cases
from tests.fuzz.damage import damaged, noise
from tests.fuzz.limits import bounded
from tests.tools.inspect.device_code.test_device_code import FILES as RECORDED

CUBIN = RECORDED["sm_121.cubin"]


def tables_first(data: bytes) -> bytes:
    """The image with its section table directly after the header, where damage at the beginning reaches it."""
    at, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    size = 64 * count
    moved = bytearray(data[:64] + data[at : at + size] + data[64:])
    struct.pack_into("<Q", moved, 40, 64)
    for row in range(64, 64 + size, 64):
        (offset,) = struct.unpack_from("<Q", moved, row + 24)
        struct.pack_into("<Q", moved, row + 24, offset + size if offset >= 64 else offset)
    return bytes(moved)


def examine(data: bytes) -> None:
    """Scan. Every image that is found lies in the file. A file that needs too much work is refused."""
    codes: tuple[DeviceCode, ...] = ()
    with bounded():
        with suppress(Refused):
            codes, _notes, _signs = scan(data)
        with memoryview(data) as view:
            cut_short(view)
    assert all(0 <= code.offset <= code.offset + code.size <= len(data) for code in codes)


def test_a_moved_table_is_read() -> None:
    """Without damage, the generator's files are healthy."""
    assert scan(tables_first(CUBIN))[0][0].kernels == scan(CUBIN)[0][0].kernels != ()


@given(damaged([CUBIN, tables_first(CUBIN)]) | noise(MAGIC, CUBIN[:64]))
def test_any_bytes_are_searched(data: bytes) -> None:
    examine(data)


@cases("elf")
def test_the_corpus(data: bytes) -> None:
    examine(data)
