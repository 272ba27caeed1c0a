"""The parameters that a contract declares: types and bounds of the values that profiles and users set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome
from harness.contract.clauses import SchemaClause, is_finite, judge_schema

__all__ = ["Parameters"]


@dataclass(frozen=True)
class Parameters:
    """The declared parameters of a contract."""

    schema: JsonObject
    """The schema with its references resolved."""
    clauses: tuple[SchemaClause, ...]
    optional: frozenset[str]
    """The parameters that are null in some profile. Null is then allowed, and means that nothing is chosen."""

    @property
    def names(self) -> tuple[str, ...]:
        """The declared parameters, in the contract's order."""
        return tuple(self.schema["properties"])

    def bounds(self, name: str) -> tuple[SchemaClause, ...]:
        """The clauses on one parameter."""
        return tuple(clause for clause in self.clauses if clause.path[0] == name)

    def violations(self, values: JsonObject) -> Iterator[SchemaClause]:
        """The clauses that these values violate. A missing parameter violates none."""
        chosen = {name: value for name, value in values.items() if value is not None or name not in self.optional}
        finite = {name: is_finite(value) for name, value in chosen.items()}
        for clause, result in zip(self.clauses, judge_schema(self.clauses, chosen, finite), strict=True):
            if result.outcome is Outcome.FAIL:
                yield clause
