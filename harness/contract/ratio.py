"""The ratio of a measurement to a clause's threshold: above 1 the clause is violated, below 1 it holds.

A mutant that is killed at a ratio of 1.01 may survive another run, and a correct subject at 0.99 may fail one. So
`harness calibrate` measures both ratios, and a contract's calibration records them.

A bound without a range (`const`, `maxItems 0`, a maximum of 0) has no ratio. Neither has a rule that is no comparison.
"""

from __future__ import annotations

import math
from typing import Any

from harness.base.device import Device
from harness.base.strictjson import JsonObject
from harness.contract.clauses import Clause, SchemaClause, is_finite, values_at
from harness.contract.expression import comparisons, engine
from harness.contract.keywords import is_number
from harness.contract.model import Contract
from harness.contract.rules import Rule, Scope

__all__ = ["has_ratio", "ratio", "ratios"]

_UPPER = frozenset({"maximum", "exclusiveMaximum"})
_LOWER = frozenset({"minimum", "exclusiveMinimum"})
_ORDERS = frozenset({"<", "<=", ">", ">="})


def has_ratio(clause: Clause) -> bool:
    """Whether the clause has a ratio."""
    if isinstance(clause, SchemaClause):
        return clause.keyword in _UPPER | _LOWER and clause.argument > 0
    compared = comparisons(clause.tree) if isinstance(clause, Rule) else ()
    return bool(compared) and all(node.text in _ORDERS for node in compared)


def ratio(clause: Clause, measurements: JsonObject, parameters: JsonObject, device: Device) -> float | None:
    """Return the largest ratio of a measurement to the clause's threshold; above 1 is a violation.

    For a lower bound it is threshold / measurement. It is infinite for a value that is not finite or has the wrong
    sign. None if the clause has no ratio or nothing was measured.
    """
    if not has_ratio(clause):
        return None
    if isinstance(clause, SchemaClause):
        values = values_at(measurements, clause.path)
        pairs = [(value, clause.argument) for value in values if is_number(value) or not is_finite(value)]
        if clause.keyword in _LOWER:
            pairs = [(bound, value) for value, bound in pairs]
    else:
        assert isinstance(clause, Rule)
        pairs = _pairs(clause, measurements, parameters, device)
    return max((_over(small, large) for small, large in pairs), default=None)


def ratios(contract: Contract, measurements: JsonObject, parameters: JsonObject, device: Device) -> dict[str, float]:
    """Return the ratio of each clause that has one, by id, in descending order."""
    clauses: tuple[Clause, ...] = (*contract.clauses, *contract.rules)
    values = {clause.id: ratio(clause, measurements, parameters, device) for clause in clauses}
    known = [(name, value) for name, value in values.items() if value is not None]
    return dict(sorted(known, key=lambda item: item[1], reverse=True))


def _over(small: Any, large: Any) -> float:
    """Return small / large. If `large` is not positive: infinite, 1 or 0, if `small` is larger, equal or smaller."""
    if not (is_finite(small) and is_finite(large)):
        return math.inf
    if large <= 0.0:
        return math.inf if small > large else 1.0 if small == large else 0.0
    return max(0.0, float(small / large))


def _pairs(rule: Rule, measurements: JsonObject, parameters: JsonObject, device: Device) -> list[tuple[float, float]]:
    """Return both sides of each comparison, the one that must be smaller first.

    Empty if a value is missing, or a side cannot be evaluated or is not a number.
    """
    finite = {name: is_finite(value) for name, value in measurements.items()}
    scope = Scope([rule], measurements, parameters, device, finite)
    if scope.wrong:
        missing = any(variable != "self" or name not in measurements for variable, name in scope.wrong)
        return [] if missing else [(math.inf, 1.0)]
    pairs = []
    for node in () if scope.costly else comparisons(rule.tree):
        sides = (rule.text[side.start : side.end] for side in node.children)
        try:
            left, right = (engine().compile(side).execute(scope.context) for side in sides)
        except Exception:  # the engine raises many types; the clause's judgment reports the error
            return []
        if not (is_number(left) and is_number(right)):
            return []
        pairs.append((float(right), float(left)) if node.text.startswith(">") else (float(left), float(right)))
    return pairs
