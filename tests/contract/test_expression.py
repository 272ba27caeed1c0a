"""The parse tree of a rule. The engine's own tree is private, so tests compare how both read an expression."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.contract.expression import ExpressionError, Node, NodeKind, comparisons, engine, parse

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda left, right: left and right,
    "||": lambda left, right: left or right,
}
_NUMBERS = st.integers(0, 9).map(lambda number: f"{number}.0")
_SUMS = st.recursive(
    _NUMBERS,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", " - "]), inner).map("".join)
        | inner.map(lambda text: f"({text})")
        | inner.map(lambda text: f"-({text})")
        | st.tuples(inner, inner).map(lambda pair: f"[{pair[0]}, {pair[1]}][1]")
    ),
    max_leaves=8,
)
_COMPARED = st.tuples(_SUMS, st.sampled_from(["<", "<=", ">", ">=", "==", " != "]), _SUMS).map("".join)
_RULES = st.recursive(
    _COMPARED,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["&&", "||", " && ", "\n|| // or\n"]), inner).map("".join)
        | inner.map(lambda text: f"!({text})")
        | st.tuples(inner, inner, inner).map(lambda three: f"({three[0]} ? {three[1]} : {three[2]})")
    ),
    max_leaves=6,
)


def evaluated(node: Node) -> Any:
    """The value of the tree, computed in Python."""
    match node.kind:
        case NodeKind.NUMBER:
            return float(node.text)
        case NodeKind.LIST:
            return [evaluated(child) for child in node.children]
        case NodeKind.INDEX:
            return evaluated(node.children[0])[int(node.children[1].text)]
        case NodeKind.CONDITIONAL:
            return evaluated(node.children[1] if evaluated(node.children[0]) else node.children[2])
    values = [evaluated(child) for child in node.children]
    if len(values) == 1:
        return not values[0] if node.text == "!" else -values[0]
    return _BINARY[node.text](*values)


def shape(node: Node) -> Any:
    """A tree without its places: kind, text and the shapes of its children."""
    return (node.kind, node.text, *map(shape, node.children))


@given(_RULES)
def test_the_engine_reads_it_the_same_way(text: str) -> None:
    """Operators bind and group in the same way, with any brackets, spaces and comments."""
    assert evaluated(parse(text)) == engine().evaluate(text)


@given(_RULES)
def test_every_part_stands_where_it_says(text: str) -> None:
    """The text of each part, with its brackets, is an expression with the same tree."""
    for node in parse(text).walk():
        assert shape(parse(text[node.start : node.end])) == shape(node)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("self.a.b", (NodeKind.SELECT, "b", (NodeKind.SELECT, "a", (NodeKind.NAME, "self")))),
        ("self . a", (NodeKind.SELECT, "a", (NodeKind.NAME, "self"))),
        ("size(a)", (NodeKind.FUNCTION, "size", (NodeKind.NAME, "a"))),
        ("a.all(x, x in b)", (
            NodeKind.METHOD, "all", (NodeKind.NAME, "a"), (NodeKind.NAME, "x"),
            (NodeKind.OPERATOR, "in", (NodeKind.NAME, "x"), (NodeKind.NAME, "b")),
        )),
        ("{'k': 1, 2.5: true,}[a]", (
            NodeKind.INDEX, "[]",
            (
                NodeKind.MAP, "{}",
                (NodeKind.STRING, "'k'"), (NodeKind.NUMBER, "1"), (NodeKind.NUMBER, "2.5"), (NodeKind.CONSTANT, "true"),
            ),
            (NodeKind.NAME, "a"),
        )),
        ("[]", (NodeKind.LIST, "[]")),
        ("f()", (NodeKind.FUNCTION, "f")),
        ("0x1F", (NodeKind.NUMBER, "0x1F")),
        (".5e-3", (NodeKind.NUMBER, ".5e-3")),
        ("--a", (NodeKind.OPERATOR, "-", (NodeKind.OPERATOR, "-", (NodeKind.NAME, "a")))),
        ("inner", (NodeKind.NAME, "inner")),
],
)  # fmt: skip
def test_trees(text: str, expected: Any) -> None:
    assert shape(parse(text)) == expected


@pytest.mark.parametrize(
    ("left", "right"),
    [*zip("-+/*<*-", "--*%>-<", strict=True), ("==", "<="), ("&&", "&&"), ("||", "||"), ("<", "&&"), ("&&", "||")],
)
def test_operators_group_to_the_left(left: str, right: str) -> None:
    """Operators of one level group to the left.

    If the second binds more strongly, it takes the operand between them.
    """
    a, b, c = ((NodeKind.NAME, name) for name in "abc")
    assert shape(parse(f"a {left} b {right} c")) == (NodeKind.OPERATOR, right, (NodeKind.OPERATOR, left, a, b), c)
    if (left, right) in (("*", "-"), ("-", "<"), ("<", "&&"), ("&&", "||")):
        assert shape(parse(f"a {right} b {left} c")) == (NodeKind.OPERATOR, right, a, (NodeKind.OPERATOR, left, b, c))


_QUOTES = st.sampled_from(["'", '"', "'''", '"""'])


def texts(tree: Node) -> list[str]:
    """The sides of a comparison that are texts, and the names that it reads."""
    return [node.text for node in tree.walk() if node.kind is NodeKind.NAME]


@given(st.text(st.sampled_from("ab'\"\\/ é"), max_size=8), _QUOTES)
def test_a_string_ends_where_the_engine_says(text: str, quotes: str) -> None:
    """Any quotes and escapes."""
    literal = quotes + text.replace("\\", "\\\\").replace(quotes[0], "\\" + quotes[0]) + quotes
    rule = f"{literal} == a && b == 'self.c'"
    assert engine().compile(rule).execute({"a": text, "b": "self.c"}) is True
    assert texts(parse(rule)) == ["a", "b"]


@given(st.text(st.sampled_from("ab\\/ é"), max_size=8), _QUOTES, st.sampled_from("rR"))
def test_a_raw_string_ends_where_the_engine_says(text: str, quotes: str, raw: str) -> None:
    """A backslash escapes nothing in it. Within three quotes, one or two of them are text."""
    text += " it's " if quotes == '"""' else ' "so" ' if quotes == "'''" else ""
    rule = f"b == 'self.c' && {raw}{quotes}{text}{quotes} == a"
    assert engine().compile(rule).execute({"a": text, "b": "self.c"}) is True
    assert texts(parse(rule)) == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", 1),
        ("a <", 4),
        ("a b", 3),
        ("a.1", 2),
        ("a.'b'", 3),
        ("a[0", 4),
        ("f(a,, b)", 5),
        ("{'k'}", 5),
        ("(a", 3),
        ("a ? b", 6),
        ("Point{x: 1}", 6),
        (".a", 1),
        ("a # b", 3),
        ("a# b", 2),
        ("abc#", 4),
        ("abc  # b", 6),
        ("'open", 1),
    ],
)
def test_what_is_no_expression_is_refused_at_its_place(text: str, place: int) -> None:
    """Places are counted in characters, from 1."""
    with pytest.raises(ExpressionError, match=rf"at character {place}\b"):
        parse(text)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ExpressionError):
        parse("(" * 900 + "a" + ")" * 900)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("self.a < 2.0 * self.b", ["<"]),
        ("self.a < self.b && (self.c >= 1.0 && self.d == 0.0)", ["<", ">=", "=="]),
        ("self.x <= {'s': 0.7}[parameters.m] * self.y", ["<="]),
        ("self.x <= (self.z ? 1.0 : 2.0) * self.y", ["<="]),
        ("self.a in self.b", ["in"]),
        ("self.a < self.b || self.c < 1.0", []),
        ("self.a < self.b && self.c", []),
        ("!(self.a < self.b)", []),
        ("self.a == 'x'", []),
        ("self.a < self.b < self.c", []),
        ("self.a == (self.b && self.c)", []),
        ("self.a < self.b ? self.c : self.d", []),
        ("self.a.all(x, x < 1.0)", []),
    ],
)
def test_the_comparisons_of_a_rule(text: str, expected: list[str]) -> None:
    """The comparisons of a rule are one, or several that must all hold. Other rules have none."""
    assert [node.text for node in comparisons(parse(text))] == expected
