"""The parameters that a contract declares: the types and bounds of what its profiles and a user may set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome
from harness.contract.clauses import SchemaClause, is_finite, judge_schema

__all__ = ["Parameters"]


@dataclass(frozen=True)
class Parameters:
    """What a contract's `parameters` say, in the dialect of its observation."""

    schema: JsonObject
    """With its local references put in place."""
    clauses: tuple[SchemaClause, ...]
    optional: frozenset[str]
    """The parameters that are null in some profile: null means there that nothing was chosen, and is allowed."""

    @property
    def names(self) -> tuple[str, ...]:
        """The declared parameters, in the contract's order."""
        return tuple(self.schema["properties"])

    def bounds(self, name: str) -> tuple[SchemaClause, ...]:
        """What is asked of one parameter."""
        return tuple(clause for clause in self.clauses if clause.path[0] == name)

    def violations(self, values: JsonObject) -> Iterator[SchemaClause]:
        """The clauses that these values violate; a parameter that is not among them violates nothing."""
        chosen = {name: value for name, value in values.items() if value is not None or name not in self.optional}
        finite = {name: is_finite(value) for name, value in chosen.items()}
        for clause, result in zip(self.clauses, judge_schema(self.clauses, chosen, finite), strict=True):
            if result.outcome is Outcome.FAIL:
                yield clause
