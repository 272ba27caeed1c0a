"""The statements that count as assertions, by the syntax of a module."""

from __future__ import annotations

import ast
import builtins
import unittest
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from harness.tools.suite.assertions import CALLED, HELD, is_constant, mark
from harness.tools.suite.weakened import FAULTS, can_plant, plant


def held(source: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places that held while a marked module ran. Its error is swallowed."""
    places: list[str] = []

    def called(place: str, function: Callable[..., Any]) -> None:
        places.append(place)

    monkeypatch.setattr(builtins, HELD, places.append, raising=False)
    monkeypatch.setattr(builtins, CALLED, called, raising=False)
    tree = ast.parse(source)
    mark(tree, "m.py")
    with suppress(AssertionError):
        exec(compile(tree, "m.py", "exec"), {"pytest": pytest, "case": unittest.TestCase()})
    return [place.removeprefix("m.py:") for place in places]


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("x = 1\nassert x", ["2:0"]),
        ("for x in (1, 2):\n  assert x", ["2:2", "2:2"]),
        ("x = 0\nassert x\nassert not x", []),
        ("def f():\n  return\n  assert f\nf()", []),
        ("x = 1\nif x > 1: assert x", []),
        ("try:\n  assert 1 > len('ab')\nexcept AssertionError: pass", []),
        ("with pytest.raises(ValueError):\n  raise ValueError", ["1:0"]),
        ("with case.assertRaises(ValueError) as caught:\n  raise ValueError", ["1:0"]),
        ("case.assertEqual(1, 1)\ncase.assertEqual(1, 2)", ["1:0"]),
        ("pytest.raises(ValueError, int, 'x')", ["1:0"]),
        ("len('assert')", []),
        ("def f(assert_it):\n  assert_it(1).is_equal_to(2)\nclass A:\n  def is_equal_to(*_): ...\nf(lambda x: A())",
         ["2:2"]),
        ("assert True\nassert len('') or 1", []),
    ],
)  # fmt: skip
def test_what_counts(source: str, places: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these is an assertion that held."""
    assert held(source, monkeypatch) == places


@pytest.mark.parametrize(
    ("condition", "constant"),
    [
        ("True", True), ("1 == 1", True), ("(x == y, 'message')", True), ("x or True", True), ("x == x", True),
        ("x.a is x.a", True), ("lambda: x", True), ("(y for y in x)", True), ("not 0", True), ("f'{1}'", True),
        ("x", False), ("x == y", False), ("x != x", False), ("f() == f()", False), ("x and True", False), ("[]", True),
        ("not x", False), ("x < y", False),
    ],
)  # fmt: skip
def test_constant_conditions(condition: str, constant: bool) -> None:
    """The condition is true without the code under test. `x != x` is not constant, because it asks for NaN."""
    assert is_constant(ast.parse(condition, mode="eval").body) is constant


def test_a_mark_keeps_names_and_lines() -> None:
    """A traceback, and the private names of a class, stay as they are."""
    tree = ast.parse("class A:\n  def f(self):\n    assert self.__x\n")
    mark(tree, "m.py")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names == {"self", HELD}
    assert {node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)} == {1, 2, 3}
    compile(tree, "m.py", "exec")


SOURCE = "class TestA:\n    def test_a(self, x):\n        x.run()\n        assert x\n"


@pytest.mark.parametrize(
    ("kind", "planted"),
    [
        (
            "returns-early",
            "class TestA:\n\n    def test_a(self, x):\n        return\n        x.run()\n        assert x",
        ),
        ("assertions-commented", "class TestA:\n\n    def test_a(self, x):\n        x.run()\n        pass"),
        ("deleted", "class TestA:\n    pass"),
    ],
)
def test_a_defect_of_a_suite(kind: str, planted: str) -> None:
    """The defect is in one test, found by its id."""
    tree = ast.parse(SOURCE)
    plant(tree, "tests/test_a.py", {"kind": kind, "function": "tests/test_a.py::TestA::test_a"})
    assert ast.unparse(tree) == planted


def test_where_a_defect_cannot_be_planted() -> None:
    """An inherited test is in no file under its id. A test that asserts in a helper has no assertion to comment out."""
    assert not can_plant(SOURCE, {"kind": "skipped", "function": "tests/test_a.py::TestB::test_a"})
    helper = "def test_a(x):\n    x.check()\n"
    kinds = {
        kind: can_plant(helper, {"kind": kind, "function": "test_a.py::test_a"})
        for kind, fault in FAULTS.items()
        if fault.plant
    }
    assert [kind for kind, can in kinds.items() if not can] == ["assertions-commented"]
