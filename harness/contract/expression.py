"""CEL: the engine that evaluates rules, and a parser, because the engine exposes no parse tree.

The grammar is that of https://github.com/google/cel-spec, without messages (`Name{field: 1}`) and names that begin with
a dot. The parser refuses all other text.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache
from importlib.machinery import PathFinder
from threading import Lock
from typing import Any, NamedTuple, final

__all__ = ["ExpressionError", "Node", "NodeKind", "comparisons", "engine", "parse"]

_TOKEN = re.compile(
    r"(?P<skipped>\s+|//[^\n]*)"
    r"|(?P<string>[bB]?[rR]\"\"\"[\s\S]*?\"\"\"|[bB]?[rR]'''[\s\S]*?'''|[bB]?[rR]\"[^\"\n]*\"|[bB]?[rR]'[^'\n]*'"
    r"|[bB]?\"\"\"(?:\\[\s\S]|[^\\])*?\"\"\"|[bB]?'''(?:\\[\s\S]|[^\\])*?'''"
    r"|[bB]?\"(?:\\.|[^\"\\\n])*\"|[bB]?'(?:\\.|[^'\\\n])*')"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?[uU]?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator>&&|\|\||<=|>=|==|!=|[-+*/%<>!?:.,()\[\]{}])",
    re.ASCII,
)
_LEVELS = (("||",), ("&&",), ("<", "<=", ">", ">=", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))
"""Binary operators by precedence, the lowest first."""
_RELATIONS = frozenset(_LEVELS[2])
_LOGIC = frozenset({"||", "&&", "!"})
_CONSTANTS = frozenset({"true", "false", "null"})
_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})


class ExpressionError(ValueError):
    """A text is not an expression of this grammar. The message states the fault and the position."""


class NodeKind(Enum):
    """The kind of a node. Children are in the order of the text."""

    NUMBER = auto()
    STRING = auto()
    CONSTANT = auto()
    """true, false or null."""
    NAME = auto()
    SELECT = auto()
    """`child.text`"""
    INDEX = auto()
    """`first[second]`"""
    FUNCTION = auto()
    """`text(children)`"""
    METHOD = auto()
    """`first.text(others)`, also for macros such as `all`."""
    OPERATOR = auto()
    """The operator `text` with one or two operands."""
    CONDITIONAL = auto()
    """`first ? second : third`"""
    LIST = auto()
    MAP = auto()
    """Keys and values, alternating."""


@final
@dataclass(frozen=True, slots=True)
class Node:
    """One part of an expression: the characters from `start` to before `end`, brackets included."""

    kind: NodeKind
    text: str
    start: int
    end: int
    children: tuple[Node, ...] = ()

    @property
    def is_macro(self) -> bool:
        """Whether it is a macro over a list: `self.times.all(time, time < 1.0)`."""
        is_call = self.kind is NodeKind.METHOD and self.text in _MACROS
        return is_call and len(self.children) > 2 and self.children[1].kind is NodeKind.NAME

    def walk(self) -> Iterator[Node]:
        """This node and everything below it, in the order of the text."""
        yield self
        for child in self.children:
            yield from child.walk()


DEEPEST = 250
"""Maximum depth of a tree. Its readers are recursive, and may run deep in the stack of another program."""


def parse(text: str) -> Node:
    """Parse an expression.

    Raises:
        ExpressionError: the text is not an expression, or is nested too deeply.
    """
    try:
        tree = _Parser(text).whole()
    except RecursionError as error:
        raise ExpressionError("nested too deeply") from error
    level: tuple[Node, ...] = (tree,)
    for _ in range(DEEPEST):
        level = tuple(child for node in level for child in node.children)
        if not level:
            return tree
    raise ExpressionError(f"nested more than {DEEPEST} levels deep")


def comparisons(root: Node) -> tuple[Node, ...]:
    """Return the comparisons of a rule that is a comparison or a conjunction of comparisons; else an empty tuple."""
    conjuncts = tuple(_conjuncts(root))
    return conjuncts if all(map(_compares, conjuncts)) else ()


def _conjuncts(node: Node) -> Iterator[Node]:
    if node.kind is NodeKind.OPERATOR and node.text == "&&":
        for child in node.children:
            yield from _conjuncts(child)
    else:
        yield node


def _compares(node: Node) -> bool:
    """Whether a node compares two values other than strings and booleans."""
    if node.kind is not NodeKind.OPERATOR or node.text not in _RELATIONS:
        return False
    return not any(
        side.kind is NodeKind.STRING or (side.kind is NodeKind.OPERATOR and side.text in _RELATIONS | _LOGIC)
        for side in node.children
    )


_LEAVES = {"number": NodeKind.NUMBER, "string": NodeKind.STRING, "name": NodeKind.NAME}


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class _Parser:
    """A recursive-descent parser with a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def whole(self) -> Node:
        node = self._expression()
        if self._token.kind != "end":
            raise self._unexpected()
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _unexpected(self) -> ExpressionError:
        token = self._token.text or "the end"
        return ExpressionError(f"{token!r} at character {self._token.start + 1} is not expected")

    def _next(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, *texts: str) -> _Token | None:
        """Take the next token and return it, if it is one of these operators."""
        token = self._token
        return self._next() if token.kind in ("operator", "name") and token.text in texts else None

    def _expect(self, text: str) -> _Token:
        token = self._accept(text)
        if token is None:
            raise self._unexpected()
        return token

    def _expression(self) -> Node:
        condition = self._binary(0)
        if not self._accept("?"):
            return condition
        chosen = self._binary(0)
        self._expect(":")
        other = self._expression()
        return Node(NodeKind.CONDITIONAL, "?", condition.start, other.end, (condition, chosen, other))

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while operator := self._accept(*_LEVELS[level]):
            right = self._binary(level + 1)
            node = Node(NodeKind.OPERATOR, operator.text, node.start, right.end, (node, right))
        return node

    def _unary(self) -> Node:
        operator = self._accept("!", "-")
        if operator is None:
            return self._member()
        child = self._unary()
        return Node(NodeKind.OPERATOR, operator.text, operator.start, child.end, (child,))

    def _member(self) -> Node:
        node = self._primary()
        while operator := self._accept(".", "["):
            if operator.text == "[":
                index = self._expression()
                node = Node(NodeKind.INDEX, "[]", node.start, self._expect("]").end, (node, index))
                continue
            if self._token.kind != "name":
                raise self._unexpected()
            name = self._next()
            if self._accept("("):
                arguments, end = self._listed(")")
                node = Node(NodeKind.METHOD, name.text, node.start, end, (node, *arguments))
            else:
                node = Node(NodeKind.SELECT, name.text, node.start, name.end, (node,))
        return node

    def _primary(self) -> Node:
        if opening := self._accept("("):
            inner = self._expression()
            return replace(inner, start=opening.start, end=self._expect(")").end)
        if opening := self._accept("["):
            children, end = self._listed("]")
            return Node(NodeKind.LIST, "[]", opening.start, end, children)
        if opening := self._accept("{"):
            children, end = self._listed("}")
            return Node(NodeKind.MAP, "{}", opening.start, end, children)
        kind = _LEAVES.get(self._token.kind)
        if kind is None:
            raise self._unexpected()
        token = self._next()
        if token.text in _CONSTANTS:
            kind = NodeKind.CONSTANT
        elif kind is NodeKind.NAME and self._accept("("):
            arguments, end = self._listed(")")
            return Node(NodeKind.FUNCTION, token.text, token.start, end, arguments)
        return Node(kind, token.text, token.start, token.end)

    def _listed(self, closing: str) -> tuple[tuple[Node, ...], int]:
        """Parse items up to a closing bracket, or keys and values up to a brace. Also returns the bracket's end."""
        nodes: list[Node] = []
        while not (end := self._accept(closing)):
            nodes.append(self._expression())
            if closing == "}":
                self._expect(":")
                nodes.append(self._expression())
            if not self._accept(","):
                end = self._expect(closing)
                break
        return tuple(nodes), end.end


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"{text[at]!r} at character {at + 1} is not expected")
        if match.lastgroup != "skipped":
            yield _Token(match.lastgroup or "", match[0], at, match.end())
        at = match.end()
    yield _Token("end", "", at, at)


_EXTENSION = "cel.cel"
_loading = Lock()


@cache
def engine() -> Any:
    """Return the extension module of the package `cel`, with `compile` and `Context`.

    `import cel` would also import the package's command line, which takes a tenth of a second.
    """
    with _loading:  # the extension cannot be initialised twice in a process
        if _EXTENSION not in sys.modules:
            package = importlib.util.find_spec("cel")
            spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations) if package else None
            if spec is None or spec.loader is None:
                return importlib.import_module("cel")  # another layout: import the whole package
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[_EXTENSION] = module
        return sys.modules[_EXTENSION]
