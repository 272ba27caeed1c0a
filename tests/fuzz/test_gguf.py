"""GGUF: any counts, lengths, nested arrays and offsets."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given

from tests.fuzz.checkpoints import ARRAYS, OTHERS, examine
from tests.fuzz.corpus import cases
from tests.fuzz.damage import damaged, noise
from tests.tools.inspect.checkpoint.files import gguf_bytes

with tempfile.TemporaryDirectory() as folder:
    FILES = [gguf_bytes(arrays, Path(folder)) for arrays in (ARRAYS, OTHERS)]


@given(damaged(FILES) | noise(b"GGUF\3\0\0\0", b"GGUF\2\0\0\0"))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    examine(data)


@cases("gguf")
def test_the_corpus(data: bytes) -> None:
    examine(data)
