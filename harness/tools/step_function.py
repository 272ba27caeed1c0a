"""What `harness probe` and `harness roofline` share: MODULE:FUNCTION, its arguments, and the files for the result."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.cli.options import named_texts, refusing, value_of
from harness.machine.limited_process import Limits, Stopped, isolated
from harness.report.terminal.printing import Block, tell_all

__all__ = ["arguments", "document_of", "found", "refuse_unknown", "refuse_unwritable", "show", "time_limit"]

_MOST_BYTES = 256 << 20
time_limit = click.option(
    "--time-limit",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="End the work after this time, and refuse.",
)


def document_of(work: Callable[[], JsonObject], seconds: float) -> JsonObject:
    """Return the document that `work` makes in a process of its own, which runs a user's code.

    That process and all that it started end after `seconds`, or with this one.

    Raises:
        click.ClickException: `work` raised one, or its process ended without the document.
    """

    def answer() -> bytes:
        try:
            reply: JsonObject = {"document": work()}
        except click.ClickException as error:
            reply = {"refused": error.format_message()}
        return strictjson.dumps(reply).encode()

    limits = Limits(math.inf, seconds, None, _MOST_BYTES, descendants=True, speaks=True)
    try:
        reply = strictjson.loads(isolated(answer, limits).decode())
    except Stopped as error:
        raise click.ClickException(f"there is no result: the process of the step {error}") from error
    if "refused" in reply:
        raise click.ClickException(reply["refused"])
    document: JsonObject = reply["document"]
    return document


def found(target: str) -> Callable[..., Any]:
    """Return the function that MODULE:FUNCTION names, from the current folder or what is installed."""
    module, separator, name = target.partition(":")
    if not (separator and module and name):
        raise click.BadParameter(f"{target!r} is not MODULE:FUNCTION", param_hint="MODULE:FUNCTION")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(f"{target}: {error}", param_hint="MODULE:FUNCTION") from error
    if not callable(found):
        raise click.BadParameter(f"{target} is not a function", param_hint="MODULE:FUNCTION")
    function: Callable[..., Any] = found
    return function


def refuse_unknown(target: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise a usage error if a function does not take these arguments."""
    with contextlib.suppress(ValueError):  # the signature is not known
        signature = inspect.signature(function)
        try:
            signature.bind(**given)
        except TypeError as error:
            takes = ", ".join(signature.parameters) or "no arguments"
            raise click.UsageError(f"{target} takes {takes}: {error}") from error


def arguments(settings: Iterable[str]) -> dict[str, Any]:
    """Return the arguments of --set by name."""
    return {name: value_of(text) for name, text in named_texts(settings, "--set", "NAME=VALUE").items()}


def refuse_unwritable(json_file: str | None, html_file: str | None) -> None:
    """Raise a usage error if a file cannot be written, before anything is measured."""
    for option, file in (("--json", json_file), ("--html", html_file)):
        if file is not None and file != "-":
            with refusing(option, file):
                open(file, "a", encoding="utf-8").close()


def show(
    document: JsonObject,
    json_file: str | None,
    html_file: str | None,
    page: Callable[[JsonObject], str],
    lines: Callable[[JsonObject], Iterable[Block]],
) -> None:
    """Write a document as JSON and as a page, where asked, and print its lines, unless its JSON goes to stdout."""
    if json_file is not None:
        with click.open_file(json_file, "w", encoding="utf-8") as file:
            file.write(strictjson.dumps(document) + "\n")
    if html_file is not None:
        Path(html_file).write_text(page(document), encoding="utf-8")
    if json_file != "-":
        tell_all(lines(document))
