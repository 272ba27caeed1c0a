"""By what margin a falsifier is right, over many seeds: healthy runs that fail, mutants that live, and ratios.

A ratio is how far a measurement is beyond its clause's threshold (harness/contract/ratio.py): above 1 it violates the
clause. A healthy subject's largest should be well below 1, a mutant's smallest well above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.base.vocabulary import Fate, Outcome
from harness.contract import Contract
from harness.contract.clauses import Clause
from harness.contract.ratio import has_ratio, ratio
from harness.evidence.result import ClaimResult
from harness.execution.executor import TrialResult
from harness.judging.judge import judge

__all__ = ["SUBJECT", "Margin", "Rate", "Spread", "margins", "rates", "recordable", "spreads"]

SUBJECT = "(the subject)"
"""Stands for a mutant's id where the subject is meant; no id has parentheses."""


@dataclass(frozen=True)
class Rate:
    """How often a trial came out as its contract declares: a subject that passes, a mutant that is killed."""

    trial: str
    runs: int
    """Those in which it ran."""
    as_declared: int
    violates: tuple[str, ...] = ()
    """The clauses that a mutant has to fail on."""


@dataclass(frozen=True)
class Margin:
    """The smallest and the largest ratio of a trial's measurement to a clause's threshold."""

    trial: str
    clause: str
    smallest: float
    largest: float
    recorded: float | None = None
    """What the contract records of it."""


@dataclass(frozen=True)
class Spread:
    """Between what a number lay that the subject measured."""

    measurement: str
    least: float
    mean: float
    most: float


def rates(contract: Contract, results: Sequence[ClaimResult]) -> list[Rate]:
    """Of the subject first, then of every mutant, unless none was to run."""
    outcomes = [judge(contract, result.subject.observation).outcome for result in results]
    found = [Rate(SUBJECT, len(results), outcomes.count(Outcome.PASS))]
    for mutant in () if all(result.record.mutants_skipped for result in results) else contract.mutants:
        fates = [one.fate for result in results for one in result.record.mutants if one.id == mutant.id]
        ran = [fate for fate in fates if fate.has_run]
        found.append(Rate(mutant.id, len(ran), ran.count(Fate.KILLED), mutant.violates))
    return found


def margins(contract: Contract, results: Sequence[ClaimResult]) -> list[Margin]:
    """Of the subject for every clause with a ratio, of a mutant for those that it has to fail on."""
    clauses: dict[str, Clause] = {clause.id: clause for clause in (*contract.clauses, *contract.rules)}
    with_ratio = {name: clause for name, clause in clauses.items() if has_ratio(clause)}
    profiles = {result.record.profile for result in results}
    found = []
    for name, clause in with_ratio.items():
        found += _margin(SUBJECT, name, clause, [result.subject for result in results], None)
    for mutant in contract.mutants:
        seen = [result.mutants[mutant.id] for result in results if mutant.id in result.mutants]
        recorded = {name: value for one in profiles for name, value in mutant.ratios.get(one, {}).items()}
        for name in mutant.violates:
            if name in with_ratio:
                found += _margin(mutant.id, name, with_ratio[name], seen, recorded.get(name))
    return found


def recordable(contract: Contract, found: Sequence[Margin]) -> dict[str, dict[str, float]]:
    """The `ratios` that each mutant should record, three digits each; what is infinite is left out."""
    smallest = {
        mutant.id: {
            one.clause: float(f"{one.smallest:.3g}")
            for one in found
            if one.trial == mutant.id and math.isfinite(one.smallest) and one.smallest > 1.0
        }
        for mutant in contract.mutants
    }
    return {name: of_clauses for name, of_clauses in smallest.items() if of_clauses}


def spreads(results: Sequence[ClaimResult]) -> list[Spread]:
    """Of every number that the subject measured in any run."""
    numbers: dict[str, list[float]] = {}
    for result in results:
        for name, value in result.subject.observation.measurements.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers.setdefault(name, []).append(float(value))
    return [Spread(name, min(values), math.fsum(values) / len(values), max(values)) for name, values in numbers.items()]


def _margin(trial: str, name: str, clause: Clause, seen: Sequence[TrialResult], recorded: float | None) -> list[Margin]:
    """One, or none where no run measured what the clause looks at."""
    observations = [one.observation for one in seen]
    ratios = [ratio(clause, one.measurements, one.parameters, one.device) for one in observations]
    found = [one for one in ratios if one is not None]
    return [Margin(trial, name, min(found), max(found), recorded)] if found else []
