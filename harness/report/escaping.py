"""Escapes untrusted texts for terminals and XML, and masks secrets in them.

Untrusted texts are claim titles, exceptions of subjects, file names, and everything else that a trial can write.
"""

from __future__ import annotations

from harness.base import shortening
from harness.base.redaction import redactor

__all__ = ["printable"]


def printable(text: str) -> str:
    """Return one line: secrets are masked, and characters that control terminals, reorder text or break XML escaped."""
    return shortening.printable(redactor().mask(text))
