"""Lines on a trial's pipe that carry proof of their writer.

The subject runs in the process of its trial, so it can write to the trial's pipe. Each writer has a key of its own. It
reads the key from a pipe and keeps it in a closure: the key is in no argument, variable of a module or environment. A
line holds an HMAC, the number of the message, and its text.

    write = signer(key_pipe)                       # there
    text = Verifier(key).opened(write(text))       # here

This stops code that writes to the pipe. It does not stop code that looks for the key in its own process's memory.
"""

from __future__ import annotations

import hmac
import itertools
import os
import secrets
from collections.abc import Callable

__all__ = ["OVERHEAD", "Forged", "Verifier", "new_key", "signer"]

OVERHEAD = 100
"""Most bytes that a line adds to a text."""
_KEY_BYTES = 32


class Forged(ValueError):
    """A line does not carry the proof of this writer, or was seen before."""


def new_key() -> bytes:
    """A key for one writer."""
    return secrets.token_bytes(_KEY_BYTES)


def signer(pipe: int) -> Callable[[bytes], bytes]:
    """Return a function that makes a signed line of a text. It reads its key from `pipe`, and closes the pipe.

    The newline before a line ends one that was cut short. Texts have no newline.
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
    """Opens the lines of one writer, each once."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")
        self._next = 0
        self._early: set[int] = set()
        """The numbers beyond the next that were seen: a signal's handler can write between a number and its line."""

    def opened(self, line: bytes) -> bytes:
        """The text of a line.

        Raises:
            Forged: another writer wrote it, or it came before.
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
        """Whether a line is missing that was written before another one."""
        return bool(self._early)
