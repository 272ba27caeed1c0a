"""Strict JSON: RFC 8259 without duplicate keys, with numbers that fit a double, and with bounded nesting.

Python's `json` accepts `NaN`, and keeps the last of two equal keys. Both could let a broken measurement pass. A
non-finite measurement is written as the tagged object `{"nonfinite": "NaN"}`, so the file stays strict JSON without
losing the value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.base import regular_file
from harness.base.shortening import cut

__all__ = [
    "DEEPEST",
    "LARGEST",
    "JsonError",
    "JsonObject",
    "Problem",
    "dump",
    "dumps",
    "is_deep",
    "is_tagged",
    "load",
    "loads",
    "pointer",
    "tag_nonfinite",
    "untag_nonfinite",
]

LARGEST = int(1.7976931348623157e308)
"""The largest integer that fits a double."""

DEEPEST = 100
"""Maximum depth of nesting: more than our documents need, and far below the limit of Python's stack."""

JsonObject = Mapping[str, Any]
"""A JSON object with arbitrary keys, such as parameters or measurements."""

_LONGEST = 400
"""Maximum characters of a message and of a pointer."""
_MOST_CHARACTERS = 2_000
"""Maximum characters of each text of a problem."""

_TAG = "nonfinite"
_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True)
class Problem:
    """One defect of a JSON document: its JSON pointer, a message, and the remedy."""

    pointer: str
    message: str
    remedy: str = ""

    def __post_init__(self) -> None:
        """Shorten the texts, because a document can have any size."""
        for name in ("pointer", "message", "remedy"):
            text = getattr(self, name)
            if len(text) > _MOST_CHARACTERS:
                object.__setattr__(self, name, f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)")

    def __str__(self) -> str:
        text = f"{self.pointer or '/'}: {self.message}"
        return f"{text} ({self.remedy})" if self.remedy else text


class JsonError(ValueError):
    """A text is not strict JSON. The error has the JSON pointer, if known, the defect and the remedy."""

    def __init__(self, message: str, remedy: str = "write strict JSON", pointer: str = "") -> None:
        message, pointer = cut(message, _LONGEST), cut(pointer, _LONGEST)  # keys of a document may be long
        super().__init__(f"{pointer}: {message} ({remedy})" if pointer else f"{message} ({remedy})")
        self.message = message
        self.pointer = pointer
        self.remedy = remedy
        self.problems = (Problem(pointer, message, remedy),)


def loads(text: str | bytes) -> Any:
    """Parse strict JSON.

    Raises:
        JsonError: syntax, duplicate keys, NaN or infinities, numbers beyond a double, deep nesting.
    """
    refused: list[_Refused] = []

    def refuse(message: str, remedy: str) -> _Refused:
        refused.append(_Refused(message, remedy))
        return refused[-1]

    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=lambda pairs: _object(pairs, refuse),
            parse_constant=lambda name: refuse(f"{name} is not JSON", "write a finite number"),
            parse_float=lambda digits: _number(digits, float, refuse),
            parse_int=lambda digits: _number(digits, int, refuse),
        )
    except RecursionError as error:
        raise JsonError("nested too deeply", f"keep to {DEEPEST} levels") from error
    except ValueError as error:
        raise JsonError(str(error)) from error
    if refused:
        raise JsonError(refused[0].message, refused[0].remedy, _pointer_to(refused[0], value))
    if is_deep(value):
        raise JsonError("nested too deeply", f"keep to {DEEPEST} levels")
    return value


def load(path: Path) -> Any:
    """Parse a file of strict JSON. Raises JsonError as `loads` does, and OSError if the file cannot be read."""
    return loads(regular_file.read(path))


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Return strict JSON. Raises ValueError for a float that is not finite; see `tag_nonfinite`."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent)


def dump(value: Any, path: Path) -> None:
    r"""Write a value as an indented file that ends in a newline. Half a surrogate pair becomes its escape, `\udc80`."""
    path.write_bytes((dumps(value, indent=2) + "\n").encode("utf-8", "backslashreplace"))


def tag_nonfinite(value: Any) -> Any:
    """Return the value with every NaN, infinity and integer beyond a double replaced by its tagged object."""
    if isinstance(value, float) and not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return {_TAG: name}
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        return {_TAG: "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, dict):
        return {key: tag_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [tag_nonfinite(item) for item in value]
    return value


def untag_nonfinite(value: Any) -> Any:
    """Reverse `tag_nonfinite`."""
    if isinstance(value, dict):
        if is_tagged(value):
            return _NAMES[value[_TAG]]
        return {key: untag_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [untag_nonfinite(item) for item in value]
    return value


def pointer(*steps: str | int) -> str:
    """Return the JSON pointer (RFC 6901) with these steps."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def is_tagged(value: JsonObject) -> bool:
    """Whether an object is the tag of a non-finite number."""
    name = value.get(_TAG) if len(value) == 1 else None
    return isinstance(name, str) and name in _NAMES


@dataclass(eq=False)
class _Refused:
    """Replaces a refused value while parsing, so that its JSON pointer can be determined afterwards."""

    message: str
    remedy: str


_Refuse = Callable[[str, str], _Refused]


def _object(pairs: list[tuple[str, Any]], refuse: _Refuse) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key not in result:
            result[key] = value
        elif not isinstance(result[key], _Refused):
            result[key] = refuse(f"the key {key!r} occurs twice in one object", "keep one of them")
    return result


def _number(digits: str, kind: type[int] | type[float], refuse: _Refuse) -> Any:
    # Python refuses to convert more than 4,300 digits. A double has at most 309 digits before the point.
    number = math.inf if kind is int and len(digits) > 310 else kind(digits)
    if -LARGEST <= number <= LARGEST:
        return number
    return refuse(f"the number {digits[:40]} does not fit a double", "write a finite number")


def _pointer_to(refused: _Refused, value: Any) -> str:
    """Return the pointer to a refused value. The stack is explicit, because `value` can be nested deeply."""
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        place, item = pending.pop()
        if item is refused:
            return place
        inner: Any = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        pending.extend((place + pointer(key), child) for key, child in inner)
    return ""


def is_deep(value: Any) -> bool:
    """Whether a value is nested deeper than `DEEPEST`. The check does not recurse."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, (dict, list))
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True
