"""The numbers that a clause compares, and their margins."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.contract.clauses import ClauseResult, SchemaClause, is_finite
from harness.contract.ratio import evaluated
from harness.contract.rules import Rule, Scope
from harness.judging.observation import Observation

__all__ = ["KEYWORDS", "SIGNS", "SIZES", "Comparison", "of_bound", "of_rule", "plain"]

KEYWORDS: Final[Mapping[str, str]] = {
    "minimum": ">=",
    "exclusiveMinimum": ">",
    "maximum": "<=",
    "exclusiveMaximum": "<",
    "const": "==",
    "minItems": ">=",
    "maxItems": "<=",
    "minLength": ">=",
    "maxLength": "<=",
}
"""The operator between value and limit of each keyword that compares numbers."""
SIGNS: Final = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "="}
"""Operators as readers know them."""
SIZES: Final = {"minItems": "item", "maxItems": "item", "minLength": "letter", "maxLength": "letter"}
"""The keywords that look at a size, and what they count."""
_MEASUREMENT: Final = re.compile(r"self\.(\w+)")
_HOLDS: Final = {
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
    "==": lambda value, bound: value == bound,
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


@dataclass(frozen=True)
class Comparison:
    """A measured value and its bound."""

    value: float
    operator: str
    """One of <, <=, >, >= and ==, between value and bound."""
    bound: float
    of: str = ""
    """The measurement that has the value; empty if the value is computed from several."""

    @property
    def holds(self) -> bool:
        """Whether the comparison is true."""
        return bool(_HOLDS[self.operator](self.value, self.bound))

    @property
    def margin(self) -> str:
        """How far the value is from the bound, in words."""
        if self.value == self.bound:
            return "equal" if self.operator == "==" else "on the bound"
        side = "above" if self.value > self.bound else "below"
        if self.bound == 0:
            return side
        ratio = self.value / self.bound
        if not math.isfinite(ratio) or ratio < 0:
            return side
        if ratio >= 2:
            return f"{float(f'{ratio:.3g}'):,g} times the bound" if ratio < 1e6 else f"{ratio:.2g} times the bound"
        if 0 < ratio < 0.05:
            return f"{100 * ratio:.2g} % of the bound"  # every value far below the bound would be "100 % below"
        percent = 100 * abs(ratio - 1)
        return f"{percent:.0f} % {side}" if percent >= 10 else f"{percent:.2g} % {side}"


def of_bound(clause: SchemaClause, result: ClauseResult) -> Comparison | None:
    """Return the comparison of a keyword of the observation schema; None if it compares no numbers."""
    operator = KEYWORDS.get(clause.keyword)
    value, bound = _measure(clause.keyword, result.value), plain(clause.argument)
    if operator is None or value is None or bound is None:
        return None
    place, _, keyword = clause.id.rpartition(".")
    return Comparison(value, operator, bound, "" if keyword in SIZES else place)


def of_rule(rule: Rule, observation: Observation) -> tuple[Comparison, ...]:
    """Return the comparisons of a rule that is a conjunction of comparisons of numbers; empty for other rules."""
    measurements = observation.measurements
    finite = {name: is_finite(value) for name, value in measurements.items()}
    scope = Scope((rule,), measurements, observation.parameters, observation.device, finite)
    if scope.wrong or scope.costly:
        return ()
    found = []
    for node, value, bound in evaluated(rule, scope):
        left, right = (rule.text[side.start : side.end] for side in node.children)
        operator = node.text
        if operator not in _HOLDS or not (math.isfinite(value) and math.isfinite(bound)):
            return ()
        if "self." in right and "self." not in left:
            left, operator, value, bound = right, _MIRRORED[operator], bound, value
        name = _MEASUREMENT.fullmatch(left)
        found.append(Comparison(value, operator, bound, name[1] if name else ""))
    return tuple(found)


def _measure(keyword: str, value: Any) -> float | None:
    if keyword in ("minItems", "maxItems"):
        if isinstance(value, Mapping):
            return plain(value.get("items"))
        return float(len(value)) if isinstance(value, (list, tuple)) else None
    if keyword in ("minLength", "maxLength"):
        if isinstance(value, Mapping):
            return plain(value.get("length"))
        return float(len(value)) if isinstance(value, str) else None
    return plain(value)


def plain(value: Any) -> float | None:
    """Return a finite number as a float; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
