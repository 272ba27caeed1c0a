"""The figures that a contract names: its key `figures`, by the places of its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from harness.base.strictjson import JsonObject

__all__ = ["FigureUse", "uses_of"]


@final
@dataclass(frozen=True, slots=True)
class FigureUse:
    """The figure that a bound comes from, or several whose sum it is."""

    names: tuple[str, ...]
    derivation: str = ""
    """How the bound follows: `complement`, `increase`, `tolerance` or `side`; empty if it is the figure itself."""
    unit: str = ""
    """The unit of the bound, if the contract does not state it elsewhere."""


def uses_of(document: JsonObject) -> dict[str, tuple[FigureUse, ...]]:
    """Return the figures that a contract names, by the places of its bounds."""
    named = document.get("figures", {})
    return {key: tuple(map(_use, uses if isinstance(uses, list) else [uses])) for key, uses in named.items()}


def _use(use: Any) -> FigureUse:
    if isinstance(use, str):
        return FigureUse((use,))
    names = use.get("sum", [use["figure"]] if "figure" in use else [])
    return FigureUse(tuple(names), use.get("as", ""), use.get("unit", ""))
