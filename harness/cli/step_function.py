"""MODULE:FUNCTION and its arguments: the function that builds a step."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from harness.base import strictjson

__all__ = ["found", "pair", "refuse_unwritable", "value"]


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


def pair(text: str, option: str) -> tuple[str, Any]:
    """Return name and value of NAME=VALUE."""
    name, separator, given = text.partition("=")
    if not (separator and name):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
    return name, value(given)


def value(text: str) -> Any:
    """Return JSON, such as 8 or true; otherwise the text itself."""
    try:
        return strictjson.loads(text)
    except strictjson.JsonError:
        return text


def refuse_unwritable(option: str, file: str | None) -> None:
    """Raise a usage error if a file cannot be written, before anything is measured."""
    if file is None or file == "-":
        return
    try:
        open(file, "a", encoding="utf-8").close()
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be written: {error.strerror}", param_hint=option) from error
