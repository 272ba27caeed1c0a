"""Clauses and mutants as rows of tables: measured values, bounds, ratios and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harness.base.shortening import cut
from harness.base.vocabulary import Fate, Outcome
from harness.contract import Contract
from harness.contract.bound import RULE
from harness.contract.clauses import Clause, ClauseResult, SchemaClause
from harness.contract.ratio import ratio
from harness.contract.rules import Rule
from harness.evidence.trial_files import MutantTrial
from harness.judging.counterexample import Counterexample
from harness.judging.judge import Judgment
from harness.judging.observation import Observation
from harness.judging.record import MutantRecord
from harness.report.messages import bound_text, number_text
from harness.report.messages.verdict_text import words
from harness.tools.html.contents import Contents

__all__ = ["ClauseGroup", "Clauses", "Kill", "Row", "kills"]

_KILL_ORDER: Final = (Fate.SURVIVED, Fate.MISATTRIBUTED, Fate.INCONCLUSIVE, Fate.INTERRUPTED, Fate.NOT_RUN, Fate.KILLED)
_LONGEST: Final = 600
_MOST_VALUES: Final = 12
_TYPES: Final = (".type", ".closed")
_NOT_JUDGED: Final = "not judged"


class ClauseGroup(StrEnum):
    """The groups of clauses on a page, in order. The values are headings."""

    DECISIVE = "Violated"
    UNMEASURED = "Not measured"
    RULE = "Rules of the claim"
    BOUND = "Bounds on measurements"
    BUILT_IN = "What holds for every claim"
    UNJUDGED = "Not judged"
    """The profile does not take the measurements."""
    FORM = "Types and signs"
    """The right type, or a number that is not negative. These are not results."""


@dataclass(frozen=True)
class Row:
    """One row of a table of clauses."""

    id: str
    outcome: str
    """An `Outcome`, or `not judged`."""
    kind: ClauseGroup
    nature: ClauseGroup
    """The kind of the clause if it passes."""
    values: tuple[tuple[str, str], ...] = ()
    """What was measured: names and texts. A single value has no name."""
    bound: str = ""
    reason: str = ""
    source: str = ""
    about: str = ""
    ratio: float | None = None
    """As in `harness.contract.ratio`: above 1 the clause is violated."""


_KINDS: Final = tuple(ClauseGroup)


@dataclass(frozen=True)
class Clauses:
    """The clauses of a contract, to show the results of any trial."""

    contract: Contract | None
    clauses: Mapping[str, Clause]

    @classmethod
    def of(cls, contract: Contract | None) -> Clauses:
        """Take the clauses of a contract. Without a contract, rows have no sources and no ratios."""
        return cls(contract, {clause.id: clause for clause in (*contract.clauses, *contract.rules)} if contract else {})

    def rows(
        self, results: Sequence[ClauseResult], observation: Observation | None, unjudged: Sequence[str] = ()
    ) -> list[Row]:
        """Return the rows by kind, then in the contract's order; of those that are not judged, types last."""
        rows = [self.row(result, observation) for result in results]
        rows += [self._unjudged(name) for name in sorted(unjudged, key=lambda name: name.endswith(_TYPES))]
        return sorted(rows, key=lambda row: _KINDS.index(row.kind))

    def row(self, result: ClauseResult, observation: Observation | None) -> Row:
        """Return the row of one clause."""
        clause, nature = self.clauses.get(result.id), self._nature(result.id)
        kinds = {Outcome.FAIL: ClauseGroup.DECISIVE, Outcome.NOT_MEASURED: ClauseGroup.UNMEASURED}
        near = None
        if clause is not None and observation is not None and result.outcome is not Outcome.NOT_MEASURED:
            near = ratio(clause, observation.measurements, observation.parameters, observation.device)
        return Row(
            id=result.id,
            outcome=result.outcome,
            kind=kinds.get(result.outcome, nature),
            nature=nature,
            values=self._values(result),
            bound=cut(bound_text.of(result.bound, result.unit), _LONGEST),
            reason=cut(words(result, None), _LONGEST),
            source=cut(clause.source if isinstance(clause, (SchemaClause, Rule)) else "", _LONGEST),
            about=self._about(clause),
            ratio=near,
        )

    def _unjudged(self, name: str) -> Row:
        clause = self.clauses.get(name)
        bound = cut(bound_text.of(clause.bound), _LONGEST) if clause else ""
        return Row(name, _NOT_JUDGED, ClauseGroup.UNJUDGED, self._nature(name), bound=bound, about=self._about(clause))

    def _about(self, clause: Clause | None) -> str:
        if self.contract is None or not isinstance(clause, SchemaClause):
            return ""
        return cut(str(self.contract.observation["properties"][clause.path[0]].get("description", "")), _LONGEST)

    def _nature(self, name: str) -> ClauseGroup:
        clause = self.clauses.get(name)
        if isinstance(clause, Rule):
            return ClauseGroup.RULE
        is_sign = isinstance(clause, SchemaClause) and clause.keyword == "minimum" and clause.argument == 0
        if is_sign or name.endswith(_TYPES):
            return ClauseGroup.FORM
        return ClauseGroup.BUILT_IN if clause is None else ClauseGroup.BOUND

    def _values(self, result: ClauseResult) -> tuple[tuple[str, str], ...]:
        value = result.value
        if not isinstance(value, Mapping) or result.bound is None or result.bound.keyword != RULE:
            return (("", number_text.value(value, result.unit)),)
        properties = self.contract.observation["properties"] if self.contract else {}
        named = [
            (str(name), number_text.value(one, str(properties.get(name, {}).get("x-unit", ""))))
            for name, one in list(value.items())[:_MOST_VALUES]
        ]
        more = len(value) - _MOST_VALUES
        return (*named, *((("", f"and {more} more"),) if more > 0 else ()))


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
