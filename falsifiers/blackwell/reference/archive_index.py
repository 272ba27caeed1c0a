"""The index of a kernel archive as JSON text. The reader trusts nothing, and names the place of every fault."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

_FORMAT: Final = 1
_PARTS: Final = ("format", "compiler", "images")
_JSON_NAMES: Final = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "an integer",
                      float: "a number", type(None): "null"}  # fmt: skip


class IndexRefused(ValueError):
    """The text is not a valid index; the message names the fault and its place."""


@dataclass(frozen=True)
class ArchiveEntry:
    """One image: its kernel, target, source digest, SHA-256 and file name."""

    kernel: str
    sm: int
    source: str
    sha256: str
    file: str


_TYPES: Final[Mapping[str, type]] = {field.name: int if field.name == "sm" else str for field in fields(ArchiveEntry)}


def written(compiler: str, entries: Iterable[ArchiveEntry]) -> bytes:
    """The text of an index of these images."""
    index = {"format": _FORMAT, "compiler": compiler, "images": [asdict(entry) for entry in entries]}
    return (json.dumps(index, indent=1) + "\n").encode()


def read(data: bytes) -> tuple[str, tuple[ArchiveEntry, ...]]:
    """The compiler that the index names, and its images.

    Raises:
        IndexRefused: the text is not JSON, has another format, or a member is missing, unknown, repeated or mistyped.
    """
    index = _parsed(data)
    _is(dict, index, "the index")
    if index.get("format", _FORMAT) != _FORMAT:  # checked first: other formats may have other members
        raise IndexRefused(f"/format is {json.dumps(index['format'])[:60]}; this program reads {_FORMAT}")
    _has_exactly(_PARTS, index, "")
    _is(int, index["format"], "/format")
    _is(str, index["compiler"], "/compiler")
    _is(list, index["images"], "/images")
    places: dict[tuple[str, int], str] = {}
    entries = []
    for number, image in enumerate(index["images"]):
        place = f"/images/{number}"
        _is(dict, image, place)
        _has_exactly(tuple(_TYPES), image, place)
        for name, kind in _TYPES.items():
            _is(kind, image[name], f"{place}/{name}")
        entry = ArchiveEntry(**image)
        before = places.setdefault((entry.kernel, entry.sm), place)
        if before != place:
            raise IndexRefused(f"{before} and {place} are both {entry.kernel} for sm_{entry.sm}")
        entries.append(entry)
    return index["compiler"], tuple(entries)


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_each_once)
    except UnicodeDecodeError as error:
        raise IndexRefused(f"it is not UTF-8, from byte {error.start} on") from error
    except json.JSONDecodeError as error:
        raise IndexRefused(f"it is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except IndexRefused:
        raise
    except ValueError as error:  # Python's limit on the digits of an integer is the only other cause
        raise IndexRefused("it has an integer of more digits than Python reads") from error
    except RecursionError as error:
        raise IndexRefused("it is nested too deeply to be an index") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    loaded: dict[str, Any] = {}
    for name, value in pairs:
        if name in loaded:
            raise IndexRefused(f"an object has {name} twice")
        loaded[name] = value
    return loaded


def _is(kind: type, value: Any, place: str) -> None:
    if type(value) is not kind:
        raise IndexRefused(f"{place} must be {_JSON_NAMES[kind]}, but is {_JSON_NAMES[type(value)]}")


def _has_exactly(names: tuple[str, ...], document: Mapping[str, Any], place: str) -> None:
    for name in names:
        if name not in document:
            raise IndexRefused(f"{place}/{name} is missing")
    for name in document:
        if name not in names:
            raise IndexRefused(f"{place or 'the index'} has an unknown member {name[:60]}")
