"""The clauses of a judgment as rows: what was measured, what it was held against, how near it came, and who says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from markupsafe import Markup

from harness.base.vocabulary import Fate, Outcome
from harness.contract import Contract
from harness.contract.bound import RULE
from harness.contract.clauses import ClauseResult, SchemaClause
from harness.contract.reasons import ReasonCode
from harness.contract.rules import Rule
from harness.evidence.bundle import MutantTrial
from harness.judging.judge import Judgment
from harness.judging.observation import Observation
from harness.judging.record import MutantRecord
from harness.report import bound_text, number_text, reason_text
from harness.report.html.comparisons import Comparison, of_bound, of_rule, scale
from harness.report.html.contents import Contents
from harness.search.counterexample import Counterexample

__all__ = ["Clauses", "Kill", "Kind", "Quantity", "Row", "kills", "quantity"]

_ORDER: Final = (Outcome.FAIL, Outcome.NOT_MEASURED, Outcome.PASS)
_SIGNS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "const": "="}
_SIZES: Final = {
    "minItems": ("≥", "item"),
    "maxItems": ("≤", "item"),
    "minLength": ("≥", "letter"),
    "maxLength": ("≤", "letter"),
}
_KILL_ORDER: Final = (Fate.SURVIVED, Fate.MISATTRIBUTED, Fate.INCONCLUSIVE, Fate.INTERRUPTED, Fate.NOT_RUN, Fate.KILLED)
_LONGEST: Final = 600
_MOST_QUANTITIES: Final = 12


class Kind(StrEnum):
    """Where a clause belongs on a page, in this order."""

    DECISIVE = "Violated"
    UNMEASURED = "Not measured"
    RULE = "Rules of the claim"
    BOUND = "Bounds on measurements"
    BUILT_IN = "What holds for every claim"
    FORM = "Types and signs"
    """A measurement of the right type, or not below zero: what nobody would call a result."""


@dataclass(frozen=True)
class Quantity:
    """A number with its unit, in two parts so that columns of them align."""

    number: str
    unit: str = ""
    name: str = ""


@dataclass(frozen=True)
class Row:
    """One clause."""

    id: str
    outcome: Outcome
    quantities: tuple[Quantity, ...]
    bound: str
    operator: str
    """The sign of a comparison with a number; empty where the bound is none."""
    reason: str
    source: str
    about: str
    kind: Kind
    nature: Kind
    """The kind that it is of when it passes."""
    comparisons: tuple[Comparison, ...] = ()

    @property
    def scales(self) -> Sequence[tuple[Markup, str]]:
        """Each comparison drawn, with its margin in words."""
        return [(scale(one), one.margin) for one in self.comparisons]


_KINDS: Final = tuple(Kind)


@dataclass(frozen=True)
class Clauses:
    """What a contract says of its clauses, for showing the results of any trial held against them."""

    contract: Contract | None
    schema: Mapping[str, SchemaClause]
    rules: Mapping[str, Rule]

    @classmethod
    def of(cls, contract: Contract | None) -> Clauses:
        """Look them up in a contract; without one, rows have neither sources nor scales."""
        schema = {clause.id: clause for clause in contract.clauses} if contract else {}
        return cls(contract, schema, {rule.id: rule for rule in contract.rules} if contract else {})

    def rows(self, results: Sequence[ClauseResult], observation: Observation | None) -> list[Row]:
        """By kind; those that failed before those that were not measured; else in the contract's order."""
        rows = [self.row(result, observation) for result in results]
        return sorted(rows, key=lambda row: (_KINDS.index(row.kind), _ORDER.index(row.outcome)))

    def row(self, result: ClauseResult, observation: Observation | None) -> Row:
        """One of them."""
        clause, rule = self.schema.get(result.id), self.rules.get(result.id)
        comparisons: tuple[Comparison, ...] = ()
        about = ""
        if clause is not None and (one := of_bound(clause, result)) is not None:
            comparisons = (one,)
        if clause is not None and self.contract is not None:
            about = str(self.contract.observation["properties"][clause.path[0]].get("description", ""))
        if rule is not None and self.contract is not None and observation is not None:
            comparisons = of_rule(rule, self.contract, observation)
        return Row(
            id=result.id,
            outcome=result.outcome,
            quantities=self._quantities(result),
            bound=_bound(result),
            operator=_SIGNS.get(result.bound.keyword, "") if result.bound else "",
            reason=_reason(clause, result, observation),
            source=_cut(clause.source if clause else rule.source if rule else ""),
            about=_cut(about),
            kind=_kind(clause, rule, result),
            nature=_nature(clause, rule, result),
            comparisons=comparisons if _tells(comparisons, result.outcome) else (),
        )

    def unjudged(self, names: Sequence[str]) -> list[tuple[str, str, str]]:
        """Of clauses that a profile leaves out: id, bound, and what it is that was not measured; mere types last."""
        rows = []
        for name in sorted(names, key=lambda name: name.endswith((".type", ".closed"))):
            row = self.row(self._without_outcome(name), None)
            rows.append((name, row.bound, row.about))
        return rows

    def _without_outcome(self, name: str) -> ClauseResult:
        clause = self.schema.get(name) or self.rules.get(name)
        return ClauseResult(name, Outcome.NOT_MEASURED, bound=clause.bound if clause else None)

    def _quantities(self, result: ClauseResult) -> tuple[Quantity, ...]:
        value = result.value
        if result.id.endswith((".minItems", ".maxItems")) and isinstance(value, list):
            return (Quantity(_counted(len(value), "item")),)
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
    """A measured value as a number and its unit; text and lists have only the first part."""
    written = number_text.value(value, unit)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and unit == "B":
        number, _, binary = written.partition(" ")
        return Quantity(number, binary, name)
    if is_number and unit:
        return Quantity(written.removesuffix(f" {unit}"), unit, name)
    return Quantity(written, "", name)


def _kind(clause: SchemaClause | None, rule: Rule | None, result: ClauseResult) -> Kind:
    if result.outcome is Outcome.FAIL:
        return Kind.DECISIVE
    if result.outcome is Outcome.NOT_MEASURED:
        return Kind.UNMEASURED
    return _nature(clause, rule, result)


def _nature(clause: SchemaClause | None, rule: Rule | None, result: ClauseResult) -> Kind:
    if rule is not None:
        return Kind.RULE
    if clause is None:
        return Kind.FORM if result.id.endswith((".type", ".closed")) else Kind.BUILT_IN
    floor = clause.keyword == "minimum" and clause.argument == 0
    return Kind.FORM if floor or clause.keyword in ("type", "closed") else Kind.BOUND


def _tells(comparisons: Sequence[Comparison], outcome: Outcome) -> bool:
    """Whether what was compared is why the clause came out so; a list with NaN in it fails whatever its length."""
    return all(one.holds for one in comparisons) == (outcome is Outcome.PASS) and outcome is not Outcome.NOT_MEASURED


def _reason(clause: SchemaClause | None, result: ClauseResult, observation: Observation | None) -> str:
    """Why, unless that only repeats value and bound; of a list that should be shorter, what is in it."""
    reason = result.reason
    repeats = reason is not None and reason.code is ReasonCode.VIOLATED and reason.place == result.id.partition(".")[0]
    if clause is None or not repeats:
        return _cut(reason_text.of(reason))
    values = observation.measurements.get(clause.path[0]) if observation is not None else None
    if clause.keyword == "maxItems" and isinstance(values, list):
        return _cut(f"among them {', '.join(number_text.value(value) for value in values[:3])}")
    return ""


def _bound(result: ClauseResult) -> str:
    bound = result.bound
    if bound is None:
        return ""
    if bound.keyword in _SIGNS:
        return f"{_SIGNS[bound.keyword]} {number_text.value(bound.limit, result.unit)}"
    if bound.keyword in _SIZES:
        sign, thing = _SIZES[bound.keyword]
        return f"{sign} {_counted(bound.limit, thing)}"
    return _cut(bound_text.of(bound, result.unit))


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


@dataclass(frozen=True)
class Kill:
    """One mutant."""

    mutant: MutantRecord
    named: tuple[Row, ...]
    """What its trial measured on the clauses that it must fail on."""
    others: tuple[str, ...]
    """The clauses that it failed besides."""
    case: Counterexample | None
    """The case that killed it, where the falsifier searches."""


def kills(contents: Contents, clauses: Clauses) -> list[Kill]:
    """Every mutant, those that show something amiss first."""
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
        named = tuple(Row(name, outcome, (), "", "", "", "", "", Kind.DECISIVE, Kind.BOUND) for name in mutant.violates)
    others = tuple(name for name in mutant.failed if name not in mutant.violates)
    return Kill(mutant, named, others, trial.counterexample if trial else None)
