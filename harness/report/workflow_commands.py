"""Keeps the output of a run in GitHub Actions free of workflow commands that foreign texts contain.

The runner executes a line of a step's output that begins with `::`, and `##[` anywhere in a line. The exceptions and
logs of a subject, its names and the texts of contracts could so mark a job, or hide its log.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import TextIO

__all__ = ["Escaping", "escape_outputs"]

_START = re.compile(r"(?m)^([^\S\r\n]*):")
_BRACKET = re.compile(r"(?<=#)\[")


class Escaping(io.TextIOWrapper):
    """A text stream that escapes a colon at the beginning of a line, and a bracket after `#`.

    No JSON text has such a colon, and in its strings the bracket's escape is the same bracket.
    """

    _line = ""
    """The line that is not complete yet; if it is not blank, a letter and its last character stand for it."""

    def write(self, text: str) -> int:
        """Write a text, escaped. Returns its length."""
        known = len(self._line)
        # The runner ends lines at \\r, too, as `universal newlines` do.
        lines = re.split(r"(?<=[\r\n])", self._line + text)
        escaped = "".join(_BRACKET.sub(r"\\u005b", _START.sub(r"\1\\u003a", line)) for line in lines)
        super().write(escaped[known:])
        last = lines[-1]
        self._line = last if not last.strip() else f"x{last[-1]}"
        return len(text)


def escape_outputs() -> None:
    """Escape what this process prints from now on, if it runs in GitHub Actions."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        sys.stdout, sys.stderr = _escaping(sys.stdout), _escaping(sys.stderr)


def _escaping(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    encoding, errors = stream.encoding, stream.errors
    by_line, unbuffered = stream.line_buffering, stream.write_through
    return Escaping(stream.detach(), encoding=encoding, errors=errors, line_buffering=by_line, write_through=unbuffered)
