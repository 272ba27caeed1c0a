"""Judging one case of a search, and the counterexample that a search keeps.

A falsifier that searches (see `Trial.search`) measures its subject on many cases. Each measurement is a list in the
observation with one item for each case, and the contract bounds the items. One case is judged by the same clauses, on
lists of one item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from harness.base.device import Device
from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.contract import Contract
from harness.contract.clauses import ITEM, Clause, ClauseResult, is_finite, judge_schema
from harness.contract.cost import Allowance
from harness.contract.ratio import ratio
from harness.contract.rules import Scope

__all__ = [
    "COUNTEREXAMPLE",
    "Counterexample",
    "clauses_on_cases",
    "judge_case",
    "nearness",
]

COUNTEREXAMPLE: Final = "counterexample.json"
"""The file's name among the artifacts of a trial."""


@dataclass(frozen=True)
class Counterexample(JsonDataclass):
    """A case that refutes a claim, with all that is needed to run it again."""

    SCHEMA: ClassVar = "counterexample"
    FORMAT: ClassVar = 1
    LEFT_OUT: ClassVar = (None,)

    case: JsonObject
    """The argument of the falsifier's `check`, as JSON."""
    clauses: tuple[str, ...]
    """The clauses that the case violates. `subject.completes` if the subject raised, crashed or hung."""
    measurements: JsonObject
    """What was measured on the case, by name."""
    error: str = ""
    """What the subject raised. Empty if it raised nothing."""
    tried: int = 1
    """How many cases the search had tried when it found this one."""
    shrunk: bool = False
    """Whether the search looked for a simpler case. This is then the simplest that it found."""
    repeats: bool | None = None
    """Whether the case violated these clauses again when it was run once more; None if it was not."""


def clauses_on_cases(contract: Contract, names: frozenset[str]) -> tuple[Clause, ...]:
    """The clauses that one case can violate: clauses on the items of these lists, and rules that read only these."""
    on_items = [clause for clause in contract.clauses if clause.path[0] in names and clause.path[1:2] == (ITEM,)]
    rules = [rule for rule in contract.rules if {path[0] for path in rule.names["self"]} <= names]
    return (*on_items, *rules)


def judge_case(
    contract: Contract, measured: JsonObject, parameters: JsonObject, device: Device
) -> tuple[ClauseResult, ...]:
    """Judge the measurements of one case by the clauses that one case can violate. A pure function."""
    lists = {name: [value] for name, value in measured.items()}
    finite = {name: is_finite(value) for name, value in lists.items()}
    judged = {clause.id for clause in clauses_on_cases(contract, frozenset(measured))}
    rules = [rule for rule in contract.rules if rule.id in judged]
    clauses = [clause for clause in contract.clauses if clause.id in judged]
    allowance = Allowance(len(contract.mutants))
    results = tuple(judge_schema(clauses, lists, finite, allowance))
    scope = Scope(rules, lists, parameters, device, finite, allowance)
    return (*results, *(rule.judge(scope) for rule in rules))


def nearness(contract: Contract, measured: JsonObject, parameters: JsonObject, device: Device) -> dict[str, float]:
    """For each clause with a threshold, the case's ratio to it: above 1 is a violation (see `contract.ratio`)."""
    lists = {name: [value] for name, value in measured.items()}
    ratios = {
        clause.id: ratio(clause, lists, parameters, device)
        for clause in clauses_on_cases(contract, frozenset(measured))
    }
    return {name: value for name, value in ratios.items() if value is not None}
