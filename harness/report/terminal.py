"""The handler that shows a run: live lines on a terminal, plain lines in a pipe."""

from __future__ import annotations

from typing import IO

from harness.report.escaping import printable
from harness.report.plain_lines import PlainLines
from harness.run.events import Handler

__all__ = ["handler"]


def handler(stream: IO[str], verbose: bool) -> Handler:
    """The handler that suits a stream."""
    if stream.isatty():
        from harness.report.live import Live

        return Live(stream, verbose)
    return PlainLines(lambda text: print(printable(text), file=stream, flush=True), verbose)
