"""What `harness run` shows and writes while it runs, and what becomes of it if nothing reads it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import click

from harness.cli.run_options import RunOptions
from harness.run.events import Handler

__all__ = ["handlers_of", "is_missing", "let_go"]


def handlers_of(given: RunOptions) -> list[Handler]:
    """What shows or writes the events. Files are opened before the work: one that cannot be written refuses the run."""
    from harness.report import junit as junit_report
    from harness.report import records, terminal
    from harness.run import wire

    if given.event_lines:
        return [wire.handler(sys.stdout)]
    junit, json_file = given.junit, given.json_file
    handlers: list[Handler] = [terminal.handler(sys.stderr if json_file == "-" else sys.stdout, given.verbose)]
    if junit == Path("-"):
        raise click.BadParameter(
            "a file is needed, for until its end a run is an error there; standard output is for --json -",
            param_hint="--junit",
        )
    if junit is not None:
        try:
            handlers.append(junit_report.handler(junit))
        except OSError as error:
            raise click.BadParameter(f"{junit} cannot be written: {error.strerror}", param_hint="--junit") from error
    if json_file is not None:
        try:
            handlers.append(records.handler(json_file))
        except OSError as error:
            raise click.BadParameter(f"{json_file} cannot be written: {error.strerror}", param_hint="--json") from error
    return handlers


def is_missing(failures: Iterable[Exception]) -> bool:
    """Whether a report is missing; prints why. A reader that closed our output is no failure."""
    gone = (errno.EPIPE, errno.EIO)  # a pipe that was closed, a terminal that was
    telling = [error for error in failures if not (isinstance(error, OSError) and error.errno in gone)]
    for error in telling:
        click.echo(f"harness: a report is missing: {type(error).__name__}: {error}", err=True)
    return bool(telling)


def let_go(stream: IO[str]) -> None:
    """Drop what a stream cannot take any more: Python would try again at its end, and exit with a status of its own."""
    try:
        stream.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
