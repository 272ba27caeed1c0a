"""The result of `.item()` for a number on the device. Code can pass, add and print it, but cannot branch on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from harness.tools.probe.errors import Unseeable

__all__ = ["UnknownValue", "reading_values"]


class UnknownValue:
    """A number whose value is unknown without the device. Branching on it raises `Unseeable` with the place of the
    read."""

    def __init__(self, error: Unseeable) -> None:
        self._error = error

    def __repr__(self) -> str:
        return "unknown"

    def __format__(self, _specification: str) -> str:
        return "unknown"


def _passes_on(self: UnknownValue, *_others: Any) -> UnknownValue:
    return self


def _raises(self: UnknownValue, *_others: Any) -> Any:
    raise self._error


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(UnknownValue, f"__{_name}__", _passes_on)
    setattr(UnknownValue, f"__r{_name}__", _passes_on)
for _name in ("neg", "pos", "abs", "round"):
    setattr(UnknownValue, f"__{_name}__", _passes_on)
for _name in (
    "bool",
    "int",
    "float",
    "complex",
    "index",
    "hash",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "floordiv",
    "mod",
):
    setattr(UnknownValue, f"__{_name}__", _raises)


@contextmanager
def reading_values() -> Iterator[None]:
    """Let `.item()` return an `UnknownValue` where fake tensors have no value."""
    read = torch.Tensor.item

    def item(tensor: torch.Tensor) -> Any:
        try:
            return read(tensor)
        except Unseeable as error:
            return UnknownValue(error)

    with mock.patch.object(torch.Tensor, "item", item):
        yield
