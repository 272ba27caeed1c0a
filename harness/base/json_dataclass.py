"""Dataclasses with a JSON form that is derived from the types of their fields.

    @dataclass(frozen=True)
    class Bound(JsonDataclass):
        keyword: str
        limit: Any

    Bound.from_json(bound.to_json()) == bound

In JSON, an enum is its value, a path a string, a tuple a list, and a dataclass an object. Non-finite numbers are
tagged (see `strictjson`). Reading is strict: a value of another type is refused, and True is not a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints, is_typeddict

from harness.base import schemas, strictjson
from harness.base.schemas import DocumentError, Problem

__all__ = ["JsonDataclass"]


class JsonDataclass:
    """Base class of dataclasses with a JSON form."""

    __slots__ = ()

    SCHEMA: ClassVar[str] = ""
    """The name of the schema that a document must satisfy (see `harness.base.schemas`); empty for none."""
    FORMAT: ClassVar[int | None] = None
    """The value of a document's key `format`; None if it has none."""
    LEFT_OUT: ClassVar[tuple[Any, ...]] = ()
    """Fields with one of these values are omitted from the document."""

    def to_json(self) -> dict[str, Any]:
        """Return the document as strict JSON."""
        plain: dict[str, Any] = {} if self.FORMAT is None else {"format": self.FORMAT}
        for name, form in self._forms().items():
            value = getattr(self, name)
            if value not in self.LEFT_OUT:
                plain[name] = form.write(value)
        return plain

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Reverse `to_json`. Fields with a default may be missing.

        Raises:
            DocumentError: the document violates the schema, or has other fields or types.
        """
        if cls.SCHEMA:
            schemas.check(cls.SCHEMA, document)
        forms, read = cls._forms(), {}
        for name, value in _of(dict)(document).items():
            if name == "format" and cls.FORMAT is not None:
                continue  # the schema has checked it
            if name not in forms:
                raise DocumentError([Problem("", f"unknown key {name!r}")])
            read[name] = _read_at(name, forms[name], value)
        try:
            return cls(**read)
        except TypeError as error:  # a key is missing
            raise DocumentError([Problem("", str(error))]) from error

    @classmethod
    @cache
    def _forms(cls) -> Mapping[str, _Form]:
        """Return the forms of the fields by name."""
        hints = get_type_hints(cls)
        return {field.name: _form(hints[field.name]) for field in fields(cls)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Form:
    """Converts values of one type to JSON and back. Reading raises DocumentError."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _form(hint: Any) -> _Form:
    """Return the form of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (str, int, bool):
        return _Form(_same, _of(hint))
    if hint is Any:
        return _Form(strictjson.tag_nonfinite, strictjson.untag_nonfinite)
    if hint is float:
        return _Form(strictjson.tag_nonfinite, _number)
    if hint is Path:
        return _Form(str, lambda value: Path(_of(str)(value)))
    if is_typeddict(hint):
        return _Form(_same, _of(dict))
    if origin in (Union, UnionType) and arguments[1:] == (NoneType,):
        return _optional(_form(arguments[0]))
    if origin in (tuple, Sequence):
        return _items(_form(arguments[0]), origin)
    if origin in (dict, Mapping):
        return _values(_form(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _Form(lambda value: value.value, lambda value: _member(hint, value))
    if isinstance(hint, type) and issubclass(hint, JsonDataclass):
        return _Form(hint.to_json, hint.from_json)
    raise TypeError(f"{hint} has no JSON form")


def _read_at(step: str | int, form: _Form, value: Any) -> Any:
    try:
        return form.read(value)
    except DocumentError as error:
        raise error.within(step) from error


def _same(value: Any) -> Any:
    return value


def _of(*kinds: type[Any]) -> Callable[[Any], Any]:
    """Return a reader for values of exactly one of these types."""

    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise DocumentError([Problem("", f"{value!r:.100} is not {' or '.join(kind.__name__ for kind in kinds)}")])
        return value

    return read


def _number(value: Any) -> int | float:
    number: int | float = _of(int, float)(strictjson.untag_nonfinite(value))
    return number


def _member(kind: type[Enum], value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError as error:
        raise DocumentError([Problem("", str(error))]) from error


def _optional(form: _Form) -> _Form:
    return _Form(
        lambda value: None if value is None else form.write(value),
        lambda value: None if value is None else form.read(value),
    )


def _items(item: _Form, origin: type[Any]) -> _Form:
    def read(value: Any) -> Any:
        elements = [_read_at(index, item, element) for index, element in enumerate(_of(list)(value))]
        return tuple(elements) if origin is tuple else elements

    return _Form(lambda value: list(map(item.write, value)), read)


def _values(item: _Form) -> _Form:
    """Return the form of a map by name. The tag of a non-finite number is not a map."""

    def read(value: Any) -> Any:
        if strictjson.is_tagged(_of(dict)(value)):
            raise DocumentError([Problem("", "a number is not a dict")])
        return {name: _read_at(name, item, element) for name, element in value.items()}

    return _Form(lambda value: {name: item.write(element) for name, element in value.items()}, read)
