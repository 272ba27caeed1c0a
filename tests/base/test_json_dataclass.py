"""Dataclasses become JSON and come back; what is not of their form is refused with its place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import pytest

from harness.base.json_dataclass import JsonDataclass
from harness.base.schemas import DocumentError
from harness.base.strictjson import JsonObject


class Colour(StrEnum):
    RED = "red"


class Size(TypedDict):
    width: int


@dataclass(frozen=True, slots=True)
class Leaf(JsonDataclass):
    LEFT_OUT: ClassVar = (None, "", ())

    name: str
    note: str = ""
    below: Leaf | None = None


@dataclass(frozen=True)
class Tree(JsonDataclass):
    leaves: tuple[Leaf, ...]
    colour: Colour
    height: float
    count: int
    grown: bool
    place: Path
    size: Size
    colours: Mapping[str, Colour]
    anything: Any
    settings: JsonObject = field(default_factory=dict)
    oldest: Leaf | None = None


LEAF = Leaf("a", below=Leaf("b", note="small"))
TREE = Tree(
    (LEAF,), Colour.RED, math.inf, 3, True, Path("/there"), {"width": 2}, {"top": Colour.RED}, [1, math.inf],
    {"rate": -math.inf},
)  # fmt: skip
DOCUMENT = {
    "leaves": [{"name": "a", "below": {"name": "b", "note": "small"}}],
    "colour": "red",
    "height": {"nonfinite": "Infinity"},
    "count": 3,
    "grown": True,
    "place": "/there",
    "size": {"width": 2},
    "colours": {"top": "red"},
    "anything": [1, {"nonfinite": "Infinity"}],
    "settings": {"rate": {"nonfinite": "-Infinity"}},
    "oldest": None,
}


def test_a_dataclass_comes_back() -> None:
    """The document is strict JSON. A field is left out only if the class says so."""
    assert TREE.to_json() == DOCUMENT
    assert json.loads(json.dumps(TREE.to_json(), allow_nan=False)) == DOCUMENT
    assert Tree.from_json(DOCUMENT) == TREE


def test_an_integer_is_a_number() -> None:
    """JSON has one kind of number; an integer stays one."""
    assert Tree.from_json({**DOCUMENT, "height": 2}).height == 2


def test_what_has_a_default_may_be_missing() -> None:
    document = {name: value for name, value in DOCUMENT.items() if name not in ("settings", "oldest")}
    assert Tree.from_json(document) == Tree(**{**vars(TREE), "settings": {}})


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"count": True}, "/count"),
        ({"count": 3.0}, "/count"),
        ({"height": "3"}, "/height"),
        ({"height": False}, "/height"),
        ({"grown": 1}, "/grown"),
        ({"colour": "blue"}, "/colour"),
        ({"colour": None}, "/colour"),
        ({"place": 7}, "/place"),
        ({"leaves": {}}, "/leaves"),
        ({"leaves": [{"name": "a", "below": {"name": 1}}]}, "/leaves/0/below/name"),
        ({"leaves": [{}]}, "/leaves/0"),
        ({"size": []}, "/size"),
        ({"colours": {"top": 1}}, "/colours/top"),
        ({"settings": {"nonfinite": "NaN"}}, "/settings"),
        ({"settings": []}, "/settings"),
        ({"oldest": "a"}, "/oldest"),
    ],
    ids=str,
)
def test_another_type_is_refused(changed: dict[str, Any], place: str) -> None:
    """The error has the JSON pointer of the field."""
    with pytest.raises(DocumentError) as refused:
        Tree.from_json({**DOCUMENT, **changed})
    assert [problem.pointer for problem in refused.value.problems] == [place]


@pytest.mark.parametrize("document", [None, [], "Tree", {}, {**DOCUMENT, "more": 1}], ids=str)
def test_other_fields_are_refused(document: Any) -> None:
    with pytest.raises(DocumentError):
        Tree.from_json(document)


def test_a_type_without_a_form_is_a_defect_of_the_class() -> None:
    """It is found when the class is first used, whatever the value."""

    @dataclass
    class Odd(JsonDataclass):
        one: complex

    with pytest.raises(TypeError, match="complex"):
        Odd(1j).to_json()
