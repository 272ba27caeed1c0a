"""Parses untrusted TOML, with bounds on size, nesting and the length of dotted keys."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from harness.base import regular_file

__all__ = ["LARGEST", "TomlError", "load", "loads"]

LARGEST = 1 << 20
"""Maximum bytes of a file."""

_MOST_WORK = 50_000_000
"""Maximum sum of the squared number of dots of each line: a few seconds. The time of `tomllib` is quadratic in the
parts of a dotted key, an hour for a megabyte. A key is within one line."""


class TomlError(ValueError):
    """A text is not TOML, or exceeds a bound. The error states which."""


def loads(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        TomlError: syntax, deep nesting, or too many dots in a line.
    """
    if sum(line.count(".") ** 2 for line in text.split("\n")) > _MOST_WORK:
        raise TomlError("has lines with too many dots; write shorter lines")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise TomlError("nested too deeply") from error
    except ValueError as error:
        raise TomlError(str(error)) from error


def load(path: Path) -> dict[str, Any]:
    """Parse a file of TOML.

    Raises:
        OSError: the file cannot be read, is not a regular file, or has more than `LARGEST` bytes.
        TomlError: as for `loads`; also if the file is not UTF-8.
    """
    content = regular_file.read(path, LARGEST)
    try:
        return loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TomlError(str(error)) from error
