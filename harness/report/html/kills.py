"""The mutants as a kill table: the defect, what became of it, and the clause that killed it with what it measured."""

from __future__ import annotations

from dataclasses import dataclass

from harness.base.vocabulary import Fate, Outcome
from harness.judging.judge import judge
from harness.judging.observation import Observation
from harness.judging.record import MutantRecord
from harness.report.html.clauses import Clauses, Kind, Row
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
        _kill(mutant, clauses, contents.mutants.get(mutant.id), contents.killers.get(mutant.id)) for mutant in ordered
    ]


def _kill(mutant: MutantRecord, clauses: Clauses, observation: Observation | None, case: Counterexample | None) -> Kill:
    named: tuple[Row, ...] = ()
    if observation is not None and clauses.contract is not None:
        # The bundle keeps the observation, not its judgment; judging is pure, so this is the same one.
        results = {result.id: result for result in judge(clauses.contract, observation).clauses}
        named = tuple(clauses.row(results[name], observation) for name in mutant.violates if name in results)
    else:
        outcome = Outcome.FAIL if mutant.fate is Fate.KILLED else Outcome.NOT_MEASURED
        named = tuple(Row(name, outcome, (), "", "", "", "", "", Kind.DECISIVE, Kind.BOUND) for name in mutant.violates)
    return Kill(mutant, named, tuple(name for name in mutant.failed if name not in mutant.violates), case)
