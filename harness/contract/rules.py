"""CEL rules: conditions on several measurements.

The Common Expression Language (https://cel.dev), which Kubernetes uses for the same purpose, always terminates, has no
side effects, and matches regular expressions in linear time. Every JSON number becomes a double, because CEL does not
mix integers and doubles.

A rule over an empty list is vacuously true (`self.times.all(time, time < 1.0)`). Such a rule is NOT_MEASURED.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome
from harness.contract.bound import RULE, Bound
from harness.contract.clauses import Clause, ClauseResult, brief, empty_place, is_finite
from harness.contract.cost import Allowance, Shape, evaluation, of_value
from harness.contract.expression import ExpressionError, Node, NodeKind, engine, parse
from harness.contract.reasons import Reason, ReasonCode

if TYPE_CHECKING:
    from cel import Program

__all__ = [
    "BROKEN",
    "SCOPE",
    "Rule",
    "RuleError",
    "Scope",
    "compile_rule",
    "literals",
]

SCOPE = ("self", "parameters", "device")
BROKEN = frozenset({ReasonCode.CANNOT_BE_EVALUATED, ReasonCode.NOT_BOOLEAN})
"""Reasons that are the fault of the rule, not of the measurements."""
_FUNCTIONS = frozenset({"size", "double", "int", "string", "contains", "startsWith", "endsWith", "matches"})
_MOST_MACROS = 2  # nested macros read a whole list for every item of another
_LARGEST_EXACT = 1 << 53


class RuleError(ValueError):
    """A rule does not compile, or has a form that could pass by accident."""


@dataclass(frozen=True, slots=True)
class Rule(Clause):
    """One CEL rule, compiled."""

    message: str
    source: str
    tree: Node
    names: Mapping[str, tuple[tuple[str, ...], ...]]
    """The paths that the rule reads, for each of self, parameters and device."""
    reads: tuple[tuple[str, str], ...]
    """The same as (variable, first step of the path), each once."""
    measurements: frozenset[str]
    """The measurements that the rule reads."""
    looks_into: frozenset[str]
    """Names of entries that the rule reads from items of a list or map; empty if it iterates over none."""
    program: Program

    @property
    def text(self) -> str:
        """The CEL text of the rule."""
        return str(self.bound.limit)

    def cost(self, shapes: Mapping[str, Mapping[str, Shape]]) -> int:
        """Return the steps to judge the rule, given the shapes of the values of `self`, `parameters` and `device`."""
        searched = sum(shapes[kind][name].size for kind, name in self.reads if name in shapes[kind])
        return evaluation(self.tree, shapes) + 10 * searched

    def largest(self, shapes: Mapping[str, Mapping[str, Shape]]) -> str:
        """Return the name of the largest value that the rule reads."""
        read = [(shapes[kind][name].size, f"{kind}.{name}") for kind, name in self.reads if name in shapes[kind]]
        return max(read)[1] if read else "self"

    def judge(self, scope: Scope) -> ClauseResult:
        """Evaluate the rule. Only `true` is a PASS."""
        for variable, name in self.reads if scope.wrong else ():
            wrong = scope.wrong.get((variable, name))
            if wrong is not None:
                outcome = Outcome.NOT_MEASURED if wrong is ReasonCode.MISSING else Outcome.FAIL
                value = {name: scope.values[variable].get(name)} if outcome is Outcome.FAIL else None
                return self._result(outcome, value, Reason(wrong, f"{variable}.{name}"))
        if self.id in scope.costly:
            return self._result(Outcome.NOT_MEASURED, None, Reason(ReasonCode.TOO_COSTLY, scope.costly[self.id]))
        measurements = scope.values["self"]
        inputs = {}
        for path in self.names["self"]:
            value = measurements[path[0]] if len(path) == 1 else _at(measurements, path)
            if value is not None:
                inputs[".".join(path)] = brief(value)
        try:
            answer = self.program.execute(scope.context)
        except KeyError as error:
            return self._result(Outcome.NOT_MEASURED, inputs, Reason(ReasonCode.MISSING, str(error.args[0])))
        except MemoryError:  # it says nothing about the rule
            raise
        except Exception as error:  # the engine raises plain RuntimeError, TypeError, ValueError
            raised = str(error).split(". ")[0][:200]
            return self._result(Outcome.FAIL, inputs, Reason(ReasonCode.CANNOT_BE_EVALUATED, text=raised))
        if answer is True:
            empty = self._empty(scope)
            return self._result(Outcome.NOT_MEASURED if empty else Outcome.PASS, inputs, empty)
        if answer is False:
            return self._result(Outcome.FAIL, inputs, Reason(ReasonCode.VIOLATED, text=self.message))
        return self._result(Outcome.FAIL, inputs, Reason(ReasonCode.NOT_BOOLEAN, text=f"{answer!r:.100}"))

    def _empty(self, scope: Scope) -> Reason | None:
        """Return the reason if a list or map that the rule reads is empty, so that the rule is vacuously true."""
        for variable in ("self", "parameters"):
            for path in self.names[variable]:
                place = empty_place(_at(scope.values[variable], path), self.looks_into)
                if place is not None:
                    return Reason(ReasonCode.EMPTY, f"{'.'.join((variable, *path))}{place}")
        return None

    def _result(self, outcome: Outcome, value: Any, reason: Reason | None) -> ClauseResult:
        return ClauseResult(self.id, outcome, value, self.bound, "", reason)


class Scope:
    """The values of one observation that rules read, converted for the engine once for all rules."""

    __slots__ = ("context", "costly", "values", "wrong")

    def __init__(
        self,
        rules: Collection[Rule],
        measurements: JsonObject,
        parameters: JsonObject,
        device: Device,
        finite: Mapping[str, bool],
        allowance: Allowance | None = None,
    ) -> None:
        """Args:
        finite: for each measurement, whether it is finite.
        allowance: the remaining cost for judging the trial; a full one by default.
        """
        allowance = allowance or Allowance()
        self.values = {"self": measurements, "parameters": parameters, "device": device.to_json()}
        self.wrong: dict[tuple[str, str], ReasonCode] = {}
        """Why a name cannot be read. A rule that reads such a name is not evaluated."""
        readable: dict[str, dict[str, Any]] = {name: {} for name in SCOPE}
        for variable, name in dict.fromkeys(chain.from_iterable(rule.reads for rule in rules)):
            values = self.values[variable]
            if name not in values:
                self.wrong[variable, name] = ReasonCode.MISSING
            elif not (finite[name] if variable == "self" else is_finite(values[name])):
                self.wrong[variable, name] = ReasonCode.NOT_FINITE
            else:
                try:
                    readable[variable][name] = _as_doubles(values[name])
                except ValueError as error:
                    (self.wrong[variable, name],) = error.args
        shapes = {kind: {name: of_value(value) for name, value in values.items()} for kind, values in readable.items()}
        self.costly: dict[str, str] = {}
        """Rules that exceed the remaining allowance, each with the largest value that it reads."""
        for rule in rules:
            if not allowance.pays(rule.cost(shapes)):
                self.costly[rule.id] = rule.largest(shapes)
        self.context = engine().Context(readable)


def compile_rule(identifier: str, text: str, message: str, source: str = "") -> Rule:
    """Compile a rule and determine what it reads.

    Raises:
        RuleError: the rule is refused. The message states why.
    """

    try:
        program = engine().compile(text)
    except ValueError as error:
        raise RuleError(f"does not compile: {str(error).splitlines()[0]}") from error
    try:
        tree = parse(text)
    except ExpressionError as error:
        raise RuleError(f"has a form that the harness does not read: {error}") from error
    if any(node.text == "matches" and not _is_literal_match(node) for node in tree.walk() if node.kind in _CALLS):
        raise RuleError("matches takes a text and a literal pattern: self.name.matches('^[a-z]+$')")
    names = _paths(tree)
    if not names["self"]:
        raise RuleError("reads no measurement; a rule must mention self.<measurement>")
    _refuse_unknown(program, tree)
    reads = tuple(dict.fromkeys((variable, path[0]) for variable, paths in names.items() for path in paths))
    measurements = frozenset(path[0] for path in names["self"])
    entries = (node.text for node in tree.walk() if node.kind is NodeKind.SELECT)
    looks_into = frozenset(entries) if any(node.is_macro for node in tree.walk()) else frozenset()
    return Rule(identifier, Bound(RULE, text), message, source, tree, names, reads, measurements, looks_into, program)


def literals(tree: Node) -> list[float]:
    """Return the numbers in a rule, except indices of lists (`self.losses[0]`)."""
    if tree.kind is NodeKind.NUMBER:
        return [_number(tree.text)]
    children = tree.children[:1] if _is_position(tree) else tree.children
    return [number for child in children for number in literals(child)]


def _is_position(node: Node) -> bool:
    return node.kind is NodeKind.INDEX and node.children[1].kind is NodeKind.NUMBER


def _number(text: str) -> float:
    digits = text.rstrip("uU")
    return float(int(digits, 16)) if digits[:2] in ("0x", "0X") else float(digits)


def _refuse_unknown(program: Program, tree: Node) -> None:
    """Refuse unknown names, which the engine reports only at evaluation, and rules that could run too long."""
    references = program.references()
    macros = [node for node in tree.walk() if node.is_macro]
    bound = {node.children[1].text for node in macros}
    for name in references["variables"]:
        if name not in SCOPE and name not in bound:
            raise RuleError(f"names {name!r}, which does not exist; a rule sees {', '.join(SCOPE)}")
    for name in references["functions"]:
        if name.isidentifier() and name not in _FUNCTIONS:  # operators, such as `_&&_` and `@in`, are not identifiers
            raise RuleError(f"calls {name}(), which does not exist; there are {', '.join(sorted(_FUNCTIONS))}")
    unread = set(references["variables"]) - {node.text for node in tree.walk() if node.kind is NodeKind.NAME}
    if unread:
        raise RuleError(f"is ambiguous: the engine also reads {', '.join(sorted(unread))}; write it more simply")
    if len(macros) > _MOST_MACROS:
        raise RuleError(f"has more than {_MOST_MACROS} macros over lists; split it into several rules")


_CALLS = (NodeKind.METHOD, NodeKind.FUNCTION)


def _is_literal_match(node: Node) -> bool:
    """Whether a call of `matches` is a method with a literal, so that its cost is known."""
    return node.kind is NodeKind.METHOD and len(node.children) == 2 and node.children[1].kind is NodeKind.STRING


def _paths(tree: Node) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the paths that a rule reads, for each of self, parameters and device.

    Raises:
        RuleError: the rule uses one of these as a whole or by index.
    """
    paths_of: dict[str, dict[tuple[str, ...], None]] = {name: {} for name in SCOPE}

    def visit(node: Node, steps: tuple[str, ...]) -> None:
        if node.kind is NodeKind.SELECT:
            visit(node.children[0], (node.text, *steps))
        elif node.kind is NodeKind.NAME and node.text in SCOPE:
            if not steps:
                raise RuleError(f"uses {node.text} as a whole or by index; write {node.text}.<name>")
            paths_of[node.text][steps] = None
        else:
            for child in node.children:
                visit(child, ())

    visit(tree, ())
    return {name: tuple(paths) for name, paths in paths_of.items()}


def _as_doubles(value: Any) -> Any:
    """Convert a value for the engine. Raises ValueError with a ReasonCode if the engine cannot read it."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError(ReasonCode.NO_TEXT)
        return value
    if isinstance(value, (float, bool)) or value is None:
        return value
    if isinstance(value, int):
        if not -_LARGEST_EXACT <= value <= _LARGEST_EXACT:
            raise ValueError(ReasonCode.INTEGER_TOO_LARGE)
        return float(value)
    if isinstance(value, (list, tuple)):
        return [item if type(item) is float else _as_doubles(item) for item in value]
    if isinstance(value, dict):
        return {_as_doubles(str(key)): _as_doubles(item) for key, item in value.items()}
    return value


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return None
        value = value[step]
    return value
