"""Messages between the processes of a run: the subject can write any line to the pipe."""

from __future__ import annotations

import json
from typing import get_args

from hypothesis import given

from harness.execution.messages import MessageError, Received, decode, encode
from tests.execution.test_messages import EVERY
from tests.fuzz.corpus import cases
from tests.fuzz.damage import altered, damaged, noise
from tests.fuzz.limits import bounded

TEXTS = list(map(encode, EVERY))
WORDS = [
    *(arg.__name__ for arg in get_args(Received)),
    "SIGKILL",
    "SIGSEGV",
    "subject-fault",
    "completed",
    "cpu",
    "cuda:0",
]


def examine(data: bytes) -> None:
    """Decode. A decoded message can be encoded, and is then equal."""
    try:
        with bounded(seconds=2.0):
            message = decode(data)
    except MessageError:
        return
    assert isinstance(message, get_args(Received))
    assert decode(encode(message)) == message


@given(altered(list(map(json.loads, TEXTS)), WORDS) | damaged(TEXTS) | noise(b'["Measured", {"values": '))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    examine(data)


@cases("messages")
def test_the_corpus(data: bytes) -> None:
    examine(data)
