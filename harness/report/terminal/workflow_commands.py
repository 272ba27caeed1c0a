"""Workflow commands of GitHub Actions: writes annotations, and escapes commands in untrusted texts.

The runner executes a line of a step's output that begins with `::`, and `##[` anywhere in a line. Exceptions and logs
of a subject, names and texts of contracts could thus annotate a job or hide its log. So every text that the
harness prints there is escaped, and only `annotate` writes a command, whose parts are escaped one by one.
"""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import suppress
from typing import TextIO

from harness.report.escaping import printable

__all__ = ["Escaping", "annotate", "escape_outputs"]

_START = re.compile(r"(?m)^([^\S\r\n]*):")
_BRACKET = re.compile(r"(?<=#)\[")
_BETWEEN = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_A_PROPERTY = {**_BETWEEN, ":": "%3A", ",": "%2C"}


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

    def command(self, text: str) -> None:
        """Write a workflow command, on a line of its own and not escaped."""
        super().write(("\n" if self._line else "") + text + "\n")
        self._line = ""
        self.flush()


def escape_outputs() -> None:
    """Escape all further output of this process, if it runs in GitHub Actions."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        sys.stdout, sys.stderr = _escaping(sys.stdout), _escaping(sys.stderr)


def annotate(level: str, title: str, lines: list[str], file: str = "", line: int = 0) -> None:
    """Add an annotation to the job, on stderr, if this process runs in GitHub Actions.

    Args:
        level: "error", "warning" or "notice".
        file: the path from the root of the checkout; empty for none.
        line: the line in the file, if there is one.
    """
    if not isinstance(sys.stderr, Escaping):
        return
    properties = {"title": title, **({"file": file, "line": str(max(line, 1))} if file else {})}
    fields = ",".join(f"{name}={_coded(printable(text), _IN_A_PROPERTY)}" for name, text in properties.items())
    message = _coded("\n".join(map(printable, lines)), _BETWEEN)
    with suppress(OSError):  # stderr can be full; the exit status has to do
        sys.stderr.command(_BRACKET.sub(r"\\u005b", f"::{level} {fields}::{message}"))


def _coded(text: str, codes: dict[str, str]) -> str:
    return "".join(codes.get(letter, letter) for letter in text)


def _escaping(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    encoding, errors = stream.encoding, stream.errors
    by_line, unbuffered = stream.line_buffering, stream.write_through
    return Escaping(stream.detach(), encoding=encoding, errors=errors, line_buffering=by_line, write_through=unbuffered)
