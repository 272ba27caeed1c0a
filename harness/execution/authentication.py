"""Authenticated lines on a trial's pipe.

The subject runs in the process of its trial, so it can write to the trial's pipe. Each legitimate writer has its own
key. It reads the key from a pipe and keeps it in a closure, not in an argument, module variable or environment
variable. A line contains an HMAC, the number of the message, and its text.

    sign = signer(key_pipe)                       # in the trial's process
    text = Verifier(key).opened(sign(text))       # in the harness

This stops code that writes to the pipe. It does not stop code that searches its own process's memory for the key.
"""

from __future__ import annotations

import hmac
import itertools
import os
import secrets
from collections.abc import Callable

__all__ = ["OVERHEAD", "Forged", "Verifier", "new_key", "signer"]

OVERHEAD = 100
"""Maximum bytes that a line adds to a text."""
_KEY_BYTES = 32


class Forged(ValueError):
    """A line has no valid HMAC of this writer, or is a replay."""


def new_key() -> bytes:
    """Return a new key for one writer."""
    return secrets.token_bytes(_KEY_BYTES)


def signer(pipe: int) -> Callable[[bytes], bytes]:
    """Return a function that signs a text as a line. Reads the key from `pipe` and closes it.

    A line starts with a newline, which terminates a truncated line before it. Texts contain no newline.
    """
    keyed = hmac.new(os.read(pipe, _KEY_BYTES), digestmod="sha256")
    os.close(pipe)
    numbers = itertools.count()

    def sign(text: bytes) -> bytes:
        body = b"%d %b" % (next(numbers), text)
        proof = keyed.copy()
        proof.update(body)
        return b"\n%b %b\n" % (proof.hexdigest().encode(), body)

    return sign


class Verifier:
    """Verifies the lines of one writer."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")
        self._next = 0
        self._early: set[int] = set()
        """Numbers that arrived early: a signal handler can write between the numbering and the writing of a line."""

    def opened(self, line: bytes) -> bytes:
        """Return the text of a line.

        Raises:
            Forged: the HMAC is invalid, or the line is a replay.
        """
        claimed, _, body = line.partition(b" ")
        proof = self._keyed.copy()
        proof.update(body)
        if not hmac.compare_digest(proof.hexdigest().encode(), claimed):
            raise Forged("another writer wrote this")
        digits, _, text = body.partition(b" ")
        number = int(digits)
        if number < self._next or number in self._early:
            raise Forged("this was written before")
        self._early.add(number)
        while self._next in self._early:
            self._early.remove(self._next)
            self._next += 1
        return text

    @property
    def lacks(self) -> bool:
        """Whether a line is missing before one that arrived."""
        return bool(self._early)
