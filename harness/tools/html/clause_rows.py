"""Clauses and mutants as rows of tables: measured values, bounds, margins and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from harness.base.shortening import cut
from harness.base.vocabulary import Fate, Outcome
from harness.contract import Contract
from harness.contract.bound import RULE
from harness.contract.clauses import ClauseResult, SchemaClause
from harness.contract.reasons import ReasonCode
from harness.contract.rules import Rule
from harness.evidence.trial_files import MutantTrial
from harness.judging.judge import Judgment
from harness.judging.observation import Observation
from harness.judging.record import MutantRecord
from harness.report.messages import bound_text, number_text, reason_text
from harness.search.counterexample import Counterexample
from harness.tools.html.comparisons import KEYWORDS, SIGNS, SIZES, Comparison, of_bound, of_rule
from harness.tools.html.contents import Contents

__all__ = ["ClauseGroup", "Clauses", "Kill", "Quantity", "Row", "kills", "quantity"]

_ORDER: Final = (Outcome.FAIL, Outcome.NOT_MEASURED, Outcome.PASS)
_KILL_ORDER: Final = (Fate.SURVIVED, Fate.MISATTRIBUTED, Fate.INCONCLUSIVE, Fate.INTERRUPTED, Fate.NOT_RUN, Fate.KILLED)
_LONGEST: Final = 600
_MOST_QUANTITIES: Final = 12


class ClauseGroup(StrEnum):
    """The groups of clauses on a page, in order. The values are headings."""

    DECISIVE = "Violated"
    UNMEASURED = "Not measured"
    RULE = "Rules of the claim"
    BOUND = "Bounds on measurements"
    BUILT_IN = "What holds for every claim"
    FORM = "Types and signs"
    """The right type, or a number that is not negative. These are not results."""


@dataclass(frozen=True)
class Quantity:
    """A number and its unit, separate so that columns align."""

    number: str
    unit: str = ""
    name: str = ""


@dataclass(frozen=True)
class Row:
    """One row of a table of clauses."""

    id: str
    outcome: Outcome
    kind: ClauseGroup
    nature: ClauseGroup
    """The kind of the clause if it passes."""
    quantities: tuple[Quantity, ...] = ()
    bound: str = ""
    operator: str = ""
    """The sign of the comparison; empty if the bound is not a number."""
    reason: str = ""
    source: str = ""
    about: str = ""
    comparisons: tuple[Comparison, ...] = ()


_KINDS: Final = tuple(ClauseGroup)


@dataclass(frozen=True)
class Clauses:
    """The clauses of a contract, to show the results of any trial."""

    contract: Contract | None
    schema: Mapping[str, SchemaClause]
    rules: Mapping[str, Rule]

    @classmethod
    def of(cls, contract: Contract | None) -> Clauses:
        """Take the clauses of a contract. Without a contract, rows have no sources and no margins."""
        schema = {clause.id: clause for clause in contract.clauses} if contract else {}
        return cls(contract, schema, {rule.id: rule for rule in contract.rules} if contract else {})

    def rows(self, results: Sequence[ClauseResult], observation: Observation | None) -> list[Row]:
        """Return the rows by kind, then FAIL before NOT_MEASURED, then in the contract's order."""
        rows = [self.row(result, observation) for result in results]
        return sorted(rows, key=lambda row: (_KINDS.index(row.kind), _ORDER.index(row.outcome)))

    def row(self, result: ClauseResult, observation: Observation | None) -> Row:
        """Return the row of one clause."""
        clause, rule = self.schema.get(result.id), self.rules.get(result.id)
        comparisons: tuple[Comparison, ...] = ()
        about = ""
        if clause is not None and (one := of_bound(clause, result)) is not None:
            comparisons = (one,)
        if clause is not None and self.contract is not None:
            about = str(self.contract.observation["properties"][clause.path[0]].get("description", ""))
        if rule is not None and observation is not None:
            comparisons = of_rule(rule, observation)
        return Row(
            id=result.id,
            outcome=result.outcome,
            quantities=self._quantities(result),
            bound=_bound(result),
            operator=_sign(result),
            reason=_reason(clause, result, observation),
            source=cut(clause.source if clause else rule.source if rule else "", _LONGEST),
            about=cut(about, _LONGEST),
            kind=_kind(clause, rule, result),
            nature=_nature(clause, rule, result),
            comparisons=comparisons if _tells(comparisons, result.outcome) else (),
        )

    def unjudged(self, names: Sequence[str]) -> list[tuple[str, str, str]]:
        """Return id, bound and description of the clauses that a profile omits, those on types last."""
        rows = []
        for name in sorted(names, key=lambda name: name.endswith((".type", ".closed"))):
            clause = self.schema.get(name) or self.rules.get(name)
            row = self.row(ClauseResult(name, Outcome.NOT_MEASURED, bound=clause.bound if clause else None), None)
            rows.append((name, row.bound, row.about))
        return rows

    def _quantities(self, result: ClauseResult) -> tuple[Quantity, ...]:
        value = result.value
        if result.id.endswith((".minItems", ".maxItems")) and isinstance(value, list):
            return (Quantity(number_text.counted(len(value), "item")),)
        if not isinstance(value, Mapping) or result.bound is None or result.bound.keyword != RULE:
            return (quantity(value, result.unit),)
        properties = self.contract.observation["properties"] if self.contract else {}
        named = [
            quantity(one, str(properties.get(name, {}).get("x-unit", "")), str(name))
            for name, one in list(value.items())[:_MOST_QUANTITIES]
        ]
        more = len(value) - _MOST_QUANTITIES
        return (*named, *((Quantity(f"and {more} more"),) if more > 0 else ()))


def quantity(value: Any, unit: str = "", name: str = "") -> Quantity:
    """Return a measured value as number and unit. For text and lists the unit is empty."""
    written = number_text.value(value, unit)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and unit == "B":
        number, _, binary = written.partition(" ")
        return Quantity(number, binary, name)
    if is_number and unit:
        return Quantity(written.removesuffix(f" {unit}"), unit, name)
    return Quantity(written, "", name)


def _kind(clause: SchemaClause | None, rule: Rule | None, result: ClauseResult) -> ClauseGroup:
    if result.outcome is Outcome.FAIL:
        return ClauseGroup.DECISIVE
    if result.outcome is Outcome.NOT_MEASURED:
        return ClauseGroup.UNMEASURED
    return _nature(clause, rule, result)


def _nature(clause: SchemaClause | None, rule: Rule | None, result: ClauseResult) -> ClauseGroup:
    if rule is not None:
        return ClauseGroup.RULE
    if clause is None:
        return ClauseGroup.FORM if result.id.endswith((".type", ".closed")) else ClauseGroup.BUILT_IN
    floor = clause.keyword == "minimum" and clause.argument == 0
    return ClauseGroup.FORM if floor or clause.keyword in ("type", "closed") else ClauseGroup.BOUND


def _tells(comparisons: Sequence[Comparison], outcome: Outcome) -> bool:
    """Return whether the comparisons explain the outcome. They do not if a list has a NaN, for example."""
    return all(one.holds for one in comparisons) == (outcome is Outcome.PASS) and outcome is not Outcome.NOT_MEASURED


def _reason(clause: SchemaClause | None, result: ClauseResult, observation: Observation | None) -> str:
    """Return the reason, unless it repeats value and bound. For a list that is too long: its first items."""
    reason = result.reason
    repeats = reason is not None and reason.code is ReasonCode.VIOLATED and reason.place == result.id.partition(".")[0]
    if clause is None or not repeats:
        by = reason_text.stated(reason)
        return f"{cut(reason_text.of(reason), _LONGEST)}{f' [{by}]' if by else ''}"
    values = observation.measurements.get(clause.path[0]) if observation is not None else None
    if clause.keyword == "maxItems" and isinstance(values, list):
        return cut(f"among them {', '.join(number_text.value(value) for value in values[:3])}", _LONGEST)
    return ""


def _bound(result: ClauseResult) -> str:
    bound, sign = result.bound, _sign(result)
    if bound is None or not sign:
        return cut(bound_text.of(bound, result.unit), _LONGEST)
    if bound.keyword in SIZES:
        return f"{sign} {number_text.counted(bound.limit, SIZES[bound.keyword])}"
    return f"{sign} {bound_text.limit(bound.limit, result.unit)}"


def _sign(result: ClauseResult) -> str:
    """Return the sign between value and limit; empty if the bound is not a number."""
    return "" if result.bound is None else SIGNS.get(KEYWORDS.get(result.bound.keyword, ""), "")


@dataclass(frozen=True)
class Kill:
    """One row of the kill table."""

    mutant: MutantRecord
    named: tuple[Row, ...]
    """The clauses that the mutant must fail, with its measurements."""
    others: tuple[str, ...]
    """The other clauses that it failed."""
    case: Counterexample | None
    """The case that killed it, if the falsifier searches."""


def kills(contents: Contents, clauses: Clauses) -> list[Kill]:
    """Return the rows of all mutants, those that were not killed first."""
    ordered = sorted(contents.record.mutants, key=lambda mutant: _KILL_ORDER.index(mutant.fate))
    return [
        _kill(mutant, clauses, contents.mutants.get(mutant.id), contents.mutant_judgments.get(mutant.id))
        for mutant in ordered
    ]


def _kill(mutant: MutantRecord, clauses: Clauses, trial: MutantTrial | None, judgment: Judgment | None) -> Kill:
    if trial is not None and judgment is not None:
        results = {result.id: result for result in judgment.clauses}
        named = tuple(clauses.row(results[name], trial.observation) for name in mutant.violates if name in results)
    else:
        outcome = Outcome.FAIL if mutant.fate is Fate.KILLED else Outcome.NOT_MEASURED
        named = tuple(Row(name, outcome, ClauseGroup.DECISIVE, ClauseGroup.BOUND) for name in mutant.violates)
    others = tuple(name for name in mutant.failed if name not in mutant.violates)
    return Kill(mutant, named, others, trial.counterexample if trial else None)
