"""A line is accepted only if its writer has the key, and only once."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.execution.authentication import OVERHEAD, Forged, Verifier, new_key, signer


def writer(key: bytes) -> Callable[[bytes], bytes]:
    """A writer that signs with a key from a pipe."""
    reading, writing = os.pipe()
    os.write(writing, key)
    os.close(writing)
    sign = signer(reading)
    with pytest.raises(OSError, match="descriptor"):
        os.close(reading)  # it is closed
    return sign


def test_lines_are_opened_in_any_order_and_once() -> None:
    """Lines are accepted in any order, each once. A missing line is noticed when a later one comes."""
    key = new_key()
    sign, verifier = writer(key), Verifier(key)
    texts = [b"one", b"two words", b'["Three", {}]']
    lines = [sign(text).strip() for text in texts]
    assert verifier.opened(lines[1]) == texts[1]
    assert verifier.lacks
    assert [verifier.opened(lines[place]) for place in (0, 2)] == [texts[0], texts[2]]
    assert not verifier.lacks
    for line in lines:
        with pytest.raises(Forged):
            verifier.opened(line)


def test_another_key_does_not_open() -> None:
    """A line signed with another key is refused, and so is one with the key of the trial's supervisor."""
    line = writer(new_key())(b"text").strip()
    with pytest.raises(Forged):
        Verifier(new_key()).opened(line)


@given(st.integers(0, 75), st.integers(0, 7))
def test_no_bit_of_a_line_can_change(place: int, bit: int) -> None:
    """A changed bit of the proof, the number or the text is noticed."""
    key = b"k" * 32
    line = bytearray(writer(key)(b"some text.").strip())
    line[place] ^= 1 << bit
    with pytest.raises(Forged):
        Verifier(key).opened(bytes(line))


@given(st.binary(max_size=90))
def test_any_bytes_are_refused(line: bytes) -> None:
    """The only exception is Forged."""
    with pytest.raises(Forged):
        Verifier(new_key()).opened(line)


def test_a_line_is_little_longer_than_its_text() -> None:
    """The largest message therefore fits into the largest line."""
    sign = writer(new_key())
    assert max(len(sign(b"")) for _ in range(1000)) < OVERHEAD - 15
