"""CEL rules: one measurement against another.

The Common Expression Language (https://cel.dev) is what Kubernetes uses for the same purpose: it terminates, has no
side effects, and its regular expressions run in linear time. Every JSON number reaches a rule as a double, because CEL
refuses to mix integers and doubles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.clauses import Clause, ClauseResult, is_finite
from harness.verdict import Outcome

if TYPE_CHECKING:
    from cel import Program

__all__ = ["SCOPE", "Rule", "RuleError", "compile_rule", "without_strings"]

SCOPE = ("self", "parameters", "device")
_PATH = re.compile(r"\b(self|parameters|device)((?:\.[A-Za-z_]\w*)+)(\s*\()?")
_LOOSE = re.compile(r"\b(?:self|parameters|device)\b(?!\.)")
_STRING = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")


class RuleError(ValueError):
    """A rule cannot be compiled, or is of a form that could pass by accident."""


@dataclass(frozen=True)
class Rule(Clause):
    """One CEL rule, compiled."""

    message: str
    source: str
    names: Mapping[str, tuple[tuple[str, ...], ...]]
    """The paths that the rule reads, for each of self, parameters and device."""
    program: Program

    def judge(
        self, measurements: Mapping[str, Any], parameters: Mapping[str, Any], device: Mapping[str, Any]
    ) -> ClauseResult:
        """Evaluate the rule; anything but a plain `true` is not a PASS."""
        scope = {"self": measurements, "parameters": parameters, "device": device}
        context: dict[str, dict[str, Any]] = {name: {} for name in SCOPE}
        for variable, paths in self.names.items():
            values = scope[variable]
            for path in paths:
                name = path[0]
                if name not in values:
                    return self._result(Outcome.NOT_MEASURED, None, f"{variable}.{name} was not measured")
                if not is_finite(values[name]):
                    return self._result(Outcome.FAIL, {name: values[name]}, f"{variable}.{name} is not finite")
                context[variable][name] = _as_doubles(values[name])
        seen = {".".join(path): value for path in self.names["self"] if _is_short(value := _at(measurements, path))}
        try:
            answer = self.program.execute(context)
        except KeyError as error:
            return self._result(Outcome.NOT_MEASURED, seen, f"{error.args[0]} was not measured")
        except Exception as error:  # the engine raises plain RuntimeError, TypeError, ValueError
            return self._result(Outcome.FAIL, seen, f"the rule cannot be evaluated: {str(error).split('. ')[0][:200]}")
        if answer is True:
            return self._result(Outcome.PASS, seen, "")
        reason = self.message if answer is False else f"the rule gave {answer!r}, not true or false"
        return self._result(Outcome.FAIL, seen, reason)

    def _result(self, outcome: Outcome, value: Any, reason: str) -> ClauseResult:
        return ClauseResult(self.id, outcome, value, self.bound, "", reason)


def compile_rule(identifier: str, text: str, message: str, source: str = "") -> Rule:
    """Compile a rule and find what it reads.

    Raises:
        RuleError: with what to write instead.
    """
    import cel

    try:
        program = cel.compile(text)
    except ValueError as error:
        raise RuleError(f"does not compile: {str(error).splitlines()[0]}") from error
    names = _paths(text)
    if _LOOSE.search(without_strings(text)):
        raise RuleError("uses self, parameters or device as a whole or by index; write self.<name>, parameters.<name>")
    if not names["self"]:
        raise RuleError("reads no measurement; a rule must mention self.<measurement>")
    return Rule(identifier, text, message, source, names, program)


def without_strings(text: str) -> str:
    """The rule with its string literals emptied, for looking at its form."""
    return _STRING.sub('""', text)


def _paths(text: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    found: dict[str, dict[tuple[str, ...], None]] = {name: {} for name in SCOPE}
    for match in _PATH.finditer(without_strings(text)):
        steps = tuple(match[2][1:].split("."))
        path = steps[:-1] if match[3] else steps  # the last step is a method or a macro
        if not path:
            raise RuleError(f"uses {match[1]} as a whole; write {match[1]}.<name>")
        found[match[1]][path] = None
    return {name: tuple(paths) for name, paths in found.items()}


def _as_doubles(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, (str, float)):
        return value
    if isinstance(value, int):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): _as_doubles(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_doubles(item) for item in value]
    return value


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float, str)) or (isinstance(value, list) and len(value) <= 8)
