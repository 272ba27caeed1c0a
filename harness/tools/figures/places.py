"""The figures that a contract names, and the numbers that it states at the places of their bounds.

uses_of(contract.document)["steps_executed.const"]  # (FigureUse(("steps",)),)
place_of(contract, "steps_executed.const").stated  # (Stated(Relation.EQUAL, 50, 50),)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

from harness.base.strictjson import JsonObject
from harness.contract.clauses import ITEM, VALUE, SchemaClause
from harness.contract.expression import Node, NodeKind
from harness.contract.keywords import is_number
from harness.contract.model import Contract
from harness.contract.rules import Rule, literals
from harness.tools.figures.figures import Relation
from harness.tools.figures.quantity import exact, numbers_in

__all__ = ["FigureUse", "Place", "Stated", "place_of", "uses_of"]

_ROUNDING: Final = Fraction(1, 10**9)
"""A part of a number. Bounds that are no farther apart demand equality in floating point."""

_KEYWORDS: Final[Mapping[str, Relation]] = {
    "const": Relation.EQUAL,
    **dict.fromkeys(("minimum", "minItems", "minLength", "minProperties"), Relation.AT_LEAST),
    **dict.fromkeys(("maximum", "maxItems", "maxLength", "maxProperties"), Relation.AT_MOST),
    "exclusiveMinimum": Relation.MORE,
    "exclusiveMaximum": Relation.LESS,
}
_NUMERIC: Final = frozenset({"const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_OPPOSITE: Final[Mapping[str, str]] = {
    **{f"min{size}": f"max{size}" for size in ("imum", "Items", "Length", "Properties")},
    **{f"max{size}": f"min{size}" for size in ("imum", "Items", "Length", "Properties")},
}
_OPERATORS: Final[Mapping[str, Relation]] = {
    "<=": Relation.AT_MOST,
    ">=": Relation.AT_LEAST,
    "<": Relation.LESS,
    ">": Relation.MORE,
    "==": Relation.EQUAL,
}


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


@final
@dataclass(frozen=True, slots=True)
class Stated:
    """A number with what the contract demands: any value from `low` to `high` is the number, up to rounding."""

    relation: Relation
    """A parameter is the number itself: equal."""
    low: Fraction
    high: Fraction


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A place of a contract that states numbers."""

    words: str
    """What the contract says there: names, description, rule, message."""
    stated: tuple[Stated, ...]
    unit: str = ""
    """The unit that the contract states; empty if it states none."""
    source: str = ""
    """What the contract says of where its numbers come from."""
    is_text: bool = False
    """Whether the place is a text, whose numbers have the units of the text."""
    is_parameter: bool = False
    """Whether the place is a parameter, which is a number and demands nothing of a measurement."""


def place_of(contract: Contract, key: str) -> Place | None:
    """Return the place that a key of `figures` names; None if the contract has no such place."""
    for clause in contract.clauses:
        if clause.id == key:
            return _of_clause(contract.observation, clause)
    for rule in contract.rules:
        if rule.id == key:
            return _of_rule(contract, rule)
    if key == "claim":
        return _of_text(contract.claim, contract.claim)
    if key.startswith("mutants."):
        named = [mutant for mutant in contract.document["mutants"] if mutant["id"] == key.removeprefix("mutants.")]
        text = " ".join([named[0]["defect"], named[0].get("source", "")]) if named else ""
        return _of_text(f"{named[0]['id']} {text}", text) if named else None
    return _of_parameter(contract, key)


def _of_clause(observation: JsonObject, clause: SchemaClause) -> Place:
    node: Any = observation
    described: list[str] = []
    for step in clause.path:
        within = {ITEM: "items", VALUE: "additionalProperties"}.get(step)
        node = node[within] if within else node["properties"][step]
        described += [node.get("title", ""), node.get("description", "")]
    words = " ".join([*clause.path, *described])
    if isinstance(clause.argument, str):
        return _of_text(f"{words} {clause.argument}", clause.argument)
    if clause.keyword not in _KEYWORDS or not is_number(clause.argument):
        return Place(words, (), clause.unit, clause.source)
    value = exact(clause.argument)
    stated = [Stated(_KEYWORDS[clause.keyword], value, value)]
    other = node.get(_OPPOSITE.get(clause.keyword, ""))
    if is_number(other) and abs(exact(other) - value) <= 2 * _ROUNDING * abs(value):
        stated.append(Stated(Relation.EQUAL, min(value, exact(other)), max(value, exact(other))))
    # The unit of a list is that of its items, not of its length.
    return Place(words, tuple(stated), clause.unit if clause.keyword in _NUMERIC else "", clause.source)


def _of_rule(contract: Contract, rule: Rule) -> Place:
    parameters = _parameters(contract)
    stated = [Stated(relation, value, value) for relation, value in _compared(rule.tree, parameters)]
    return Place(f"{rule.id} {rule.text} {rule.message}", tuple(stated), source=rule.source)


def _of_text(words: str, text: str) -> Place:
    return Place(words, tuple(Stated(Relation.EQUAL, value, value) for value in numbers_in(text)), is_text=True)


def _of_parameter(contract: Contract, key: str) -> Place | None:
    match = re.fullmatch(r"parameters\.([a-z][a-z0-9_]*)(?:\[(\d{1,4})\])?", key)
    parameters = _parameters(contract)
    if match is None or match[1] not in parameters:
        return None
    value, words = parameters[match[1]], [match[1]]
    declared = {} if contract.parameters is None else contract.parameters.schema["properties"].get(match[1], {})
    words += [declared.get("title", ""), declared.get("description", "")]
    unit = declared.get("x-unit", "")
    if match[2] is not None:
        index = int(match[2])
        if not isinstance(value, list) or index >= len(value):
            return None
        # Lists of one length are columns of one table: the items at the same place say what an item is of.
        columns = [
            parameter
            for parameter in parameters.values()
            if isinstance(parameter, list) and len(parameter) == len(value)
        ]
        words += [str(column[index]) for column in columns if column is not value]
        value, unit = value[index], declared.get("items", {}).get("x-unit", unit)
    if isinstance(value, str):
        return _of_text(" ".join([*words, value]), value)
    stated = (Stated(Relation.EQUAL, exact(value), exact(value)),) if is_number(value) else ()
    return Place(" ".join(words), stated, unit, is_parameter=True)


def _parameters(contract: Contract) -> JsonObject:
    """The parameters of the profile that does the claim's work."""
    profiles = contract.profiles
    return profiles.get("full", next(iter(profiles.values()))).parameters


def _compared(tree: Node, parameters: JsonObject) -> Iterator[tuple[Relation, Fraction]]:
    """Yield the numbers that a rule compares something with, and how."""
    for node in tree.walk():
        if node.kind is not NodeKind.OPERATOR or node.text not in _OPERATORS or len(node.children) != 2:
            continue
        relation = _OPERATORS[node.text]
        left, right = node.children
        yield from ((relation, value) for value in _constants(right, parameters))
        yield from ((relation.flipped, value) for value in _constants(left, parameters))


def _constants(node: Node, parameters: JsonObject) -> Iterator[Fraction]:
    """Yield the numbers and parameters in a side of a comparison, except divisors."""
    if node.kind is NodeKind.NUMBER:
        yield from (exact(number) for number in literals(node) if math.isfinite(number))
    elif node.kind is NodeKind.SELECT and node.children[0].text == "parameters":
        if is_number(parameters.get(node.text)):
            yield exact(parameters[node.text])
    elif node.kind is NodeKind.OPERATOR and node.text in ("+", "-", "*", "/"):
        for child in node.children[: 1 if node.text == "/" else None]:
            yield from _constants(child, parameters)
    elif node.kind is NodeKind.INDEX and node.children[0].kind is NodeKind.MAP:
        for child in node.children[0].children:
            yield from _constants(child, parameters)
