"""Files that claim to be huge, or would grow when they are read, are refused with little memory and at once.

Each is inspected in a process of its own. Its address space may grow by 400 MiB, and it has 60 seconds of a processor.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.tools.inspect.checkpoint.files import apr, gguf_bytes, with_apr_header
from tests.tools.inspect.checkpoint.test_hostile import tensor, zipped

_SCRIPT = """
import resource, sys
from pathlib import Path
from harness.tools.inspect.checkpoint import Refused, inspect
from harness.tools.inspect.checkpoint import dtypes
dtypes.ggml(12)
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (400 << 20),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
try:
    seen = inspect(Path(sys.argv[1]))
    print("read", len(seen.tensors))
except Refused as refused:
    print("refused", refused)
"""


def outcome(path: Path) -> str:
    """The report of a process with little memory about the file."""
    done = subprocess.run([sys.executable, "-c", _SCRIPT, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def shared_texts() -> bytes:
    """A text of a megabyte that is the key of 200,000 dicts: a pickle of 2 MB that stands for 200 GB of names."""
    text = b"X" + struct.pack("<I", 1 << 20) + b"k" * (1 << 20) + b"q\1"
    return b"\x80\x02(}" + text + b"Ns" + b"}h\1Ns" * 200_000 + b"l."


def laughs() -> bytes:
    """Return a pickle of forty nested lists. Each list holds the one before twice, so there are 2**40 leaves."""
    lists = (b"](h" + bytes([n]) + b"h" + bytes([n]) + b"eq" + bytes([n + 1]) for n in range(40))
    return b"\x80\x02]q\0" + b"".join(lists) + b"."


def views() -> bytes:
    """Twenty thousand tensors that each view one storage of 4 MB from another element on: 80 GB to read."""
    shifted = (tensor(n, (1_000_000,), (1,), size=1_020_000)[2:-1] for n in range(20_000))
    return b"\x80\x02(" + b"".join(shifted) + b"t."


BOMBS: dict[str, Callable[[Path], bytes]] = {
    "safetensors header of 90 MB in a file of 100 bytes": lambda _: struct.pack("<Q", 90_000_000) + b"{" + bytes(91),
    "safetensors tensor of 2**62 bytes": lambda _: _safetensors(
        {"t": {"dtype": "U8", "shape": [2**62], "data_offsets": [0, 2**62]}}
    ),
    "safetensors shape whose product overflows": lambda _: _safetensors(
        {"t": {"dtype": "U8", "shape": [2**63, 2**63, 2**63], "data_offsets": [0, 0]}}
    ),
    "APR with four thousand million tensors": lambda _: with_apr_header(
        apr({"w": np.ones(4, np.float32)}), 8, struct.pack("<I", 2**32 - 1)
    ),
    "GGUF with 2**60 tensors": lambda folder: _gguf(folder, 8, 2**60),
    "GGUF with 2**60 keys": lambda folder: _gguf(folder, 16, 2**60),
    "GGUF with forty million elements in an array": lambda _: _gguf_arrays(0, 40_000_000),
    "GGUF with nested arrays": lambda _: (
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 1)
        + struct.pack("<Q", 1)
        + b"k"
        + struct.pack("<I", 9)
        + struct.pack("<IQ", 9, 1) * 100_000
    ),
    "pickle that shares a container without end": lambda _: zipped(laughs()),
    "pickle that shares a long text": lambda _: zipped(shared_texts()),
    "pickle with a memo of 2**31 places": lambda _: zipped(b"\x80\x02Nr\xff\xff\xff\x7f0."),
    "pickle with a text of 2**31 bytes": lambda _: zipped(b"\x80\x02X\xff\xff\xff\x7fa."),
    "pickle nested a million deep": lambda _: zipped(b"\x80\x02" + b")" + b"\x85" * 1_000_000 + b"."),
    "pickle with a key nested a million deep": lambda _: zipped(b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns."),
    "pickle whose tensors view a storage without end": lambda _: zipped(views(), {"0": bytes(4_080_000)}),
    "tensor expanded to 2**62 elements": lambda _: zipped(tensor(0, (2**62,), (0,)), {"0": bytes(16)}),
}


def _safetensors(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def _gguf(folder: Path, at: int, count: int) -> bytes:
    data = bytearray(gguf_bytes({"w": np.ones(4, np.float32)}, folder))
    data[at : at + 8] = struct.pack("<Q", count)
    return bytes(data)


def _gguf_arrays(kind: int, length: int) -> bytes:
    """An array of bytes. The package's own reader makes an object of some 700 bytes for each."""
    key = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, kind, length)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + bytes(length)


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_cost_little(name: str, tmp_path: Path) -> None:
    """Such a file is refused. It is read if its only oddity is an array that the package gguf could not hold."""
    path = tmp_path / "bomb"
    path.write_bytes(BOMBS[name](tmp_path))
    assert outcome(path).startswith("read 0" if name == "GGUF with forty million elements in an array" else "refused")


def test_a_large_file_is_read_in_pieces(tmp_path: Path) -> None:
    """A tensor of 450 MiB in a sparse file is read, with 400 MiB of memory to spare."""
    size = 450 << 20
    header = json.dumps({"t": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    with (tmp_path / "large").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    assert outcome(tmp_path / "large") == "read 1"
