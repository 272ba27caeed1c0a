"""safetensors: any JSON as header, and any length before it."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.checkpoints import ARRAYS, OTHERS, examine
from tests.fuzz.corpus import cases
from tests.fuzz.damage import altered, damaged, noise, numbers
from tests.tools.inspect.checkpoint.files import safetensors_bytes, zero_tensors

FILES = [safetensors_bytes(ARRAYS), safetensors_bytes(OTHERS), zero_tensors()]
WORDS = ["dtype", "shape", "data_offsets", "__metadata__", "F32", "F4", "BOOL", "C128", "F8_E8M0", "F6_E2M3"]


def header_of(data: bytes) -> Any:
    return json.loads(data[8 : 8 + struct.unpack_from("<Q", data)[0]])


@st.composite
def with_another_header(draw: st.DrawFn) -> bytes:
    """The bytes of healthy tensors after an altered header, whose length is correct or arbitrary."""
    text = draw(altered([header_of(data) for data in FILES], WORDS))
    length = draw(st.just(len(text)) | numbers)
    return struct.pack("<Q", length) + text + FILES[0][8 + struct.unpack_from("<Q", FILES[0])[0] :]


@given(damaged(FILES) | with_another_header() | noise(b"\x20" + bytes(7) + b"{"))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    examine(data)


@cases("safetensors")
def test_the_corpus(data: bytes) -> None:
    examine(data)
