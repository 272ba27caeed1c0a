"""Judges one case of a search, and defines the counterexample that a search stores.

A falsifier that searches (see `Trial.search`) measures its subject on many cases. Each measurement is a list in the
observation, with one item for each case and bounds on the items. One case is judged by the same clauses, on lists of
one item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from harness.base.device import Device
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.contract import Contract
from harness.contract.clauses import ITEM, Clause, ClauseResult, SchemaClause, is_finite, judge_schema
from harness.contract.cost import Allowance
from harness.contract.ratio import ratio
from harness.contract.rules import Rule, Scope

__all__ = [
    "COUNTEREXAMPLE",
    "Counterexample",
    "clauses_on_cases",
    "judge_case",
    "nearness",
]

COUNTEREXAMPLE: Final = "counterexample.json"
"""The name of the artifact."""


@dataclass(frozen=True)
class Counterexample(JsonDataclass):
    """A case that refutes a claim, with everything needed to run it again."""

    SCHEMA: ClassVar = "counterexample"
    FORMAT: ClassVar = 1
    LEFT_OUT: ClassVar = (None,)

    case: JsonObject
    """The argument of the falsifier's `check`."""
    clauses: tuple[str, ...]
    """The clauses that the case violates. `subject.completes` if the subject raised, crashed or hung."""
    measurements: JsonObject
    """Measurements of the case, by name."""
    error: str = ""
    """The subject's exception; empty if it did not raise."""
    tried: int = 1
    """Number of cases that the search had tried until this one."""
    shrunk: bool = False
    """Whether the case was shrunk."""
    repeats: bool | None = None
    """Whether a second run of the case violated the same clauses; None without a second run."""


def clauses_on_cases(contract: Contract, names: frozenset[str]) -> tuple[Clause, ...]:
    """Return the clauses that one case can violate: on the items of these lists, and rules that read only them."""
    on_items = [clause for clause in contract.clauses if clause.path[0] in names and clause.path[1:2] == (ITEM,)]
    rules = [rule for rule in contract.rules if rule.measurements <= names]
    return (*on_items, *rules)


def judge_case(
    contract: Contract, measured: JsonObject, parameters: JsonObject, device: Device
) -> tuple[ClauseResult, ...]:
    """Judge the measurements of one case by `clauses_on_cases`. A pure function."""
    lists = {name: [value] for name, value in measured.items()}
    finite = {name: is_finite(value) for name, value in lists.items()}
    judged = clauses_on_cases(contract, frozenset(measured))
    rules = [clause for clause in judged if isinstance(clause, Rule)]
    clauses = [clause for clause in judged if isinstance(clause, SchemaClause)]
    allowance = Allowance(len(contract.mutants))
    results = tuple(judge_schema(clauses, lists, finite, allowance))
    scope = Scope(rules, lists, parameters, device, finite, allowance)
    return (*results, *(rule.judge(scope) for rule in rules))


def nearness(contract: Contract, measured: JsonObject, parameters: JsonObject, device: Device) -> dict[str, float]:
    """Return the case's ratio to each threshold; above 1 is a violation (see `contract.ratio`)."""
    lists = {name: [value] for name, value in measured.items()}
    ratios = {
        clause.id: ratio(clause, lists, parameters, device)
        for clause in clauses_on_cases(contract, frozenset(measured))
    }
    return {name: value for name, value in ratios.items() if value is not None}
