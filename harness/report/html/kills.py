"""The mutants as a kill table: the defect, what became of it, and the clause that killed it with what it measured."""

from __future__ import annotations

from dataclasses import dataclass

from harness.base.vocabulary import Fate, Outcome
from harness.evidence.bundle import MutantTrial
from harness.judging.judge import Judgment
from harness.judging.record import MutantRecord
from harness.report.html.clause_rows import Clauses, Kind, Row
from harness.report.html.contents import Contents
from harness.search.counterexample import Counterexample

__all__ = ["Kill", "kills"]

_ORDER = (Fate.SURVIVED, Fate.MISATTRIBUTED, Fate.INCONCLUSIVE, Fate.INTERRUPTED, Fate.NOT_RUN, Fate.KILLED)


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
    ordered = sorted(contents.record.mutants, key=lambda mutant: _ORDER.index(mutant.fate))
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
