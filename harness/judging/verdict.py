"""From judgments to a verdict: what became of each mutant, and whether the subject's PASS means anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract import Mutant
from harness.contract.builtin import COMPLETES
from harness.judging.judge import Judgment

__all__ = ["ClaimVerdict", "MutantOutcome", "claim_verdict", "fate_of", "interrupted", "not_run"]


@dataclass(frozen=True)
class MutantOutcome:
    """What became of one mutant, and why."""

    id: str
    fate: Fate
    reason: str = ""
    failed: tuple[str, ...] = ()
    """The clauses that it failed, those first that the contract names."""


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict on a claim."""

    verdict: Verdict
    reason: str
    proven: bool
    """Whether the falsifier has been shown able to fail: every mutant that could run was killed, and one could."""


def fate_of(mutant: Mutant, judgment: Judgment) -> MutantOutcome:
    """Killed only by failing on every clause that the contract names.

    Where the trial was cut short, and not by the mutant, nobody knows what else it would have failed on.
    """
    failing = [clause.id for clause in judgment.with_outcome(Outcome.FAIL)]
    failed = tuple(sorted(failing, key=lambda clause: clause not in mutant.violates))
    missed = [clause for clause in mutant.violates if clause not in failed]
    if judgment.outcome is Outcome.PASS:
        return MutantOutcome(mutant.id, Fate.SURVIVED, "it passed every clause")
    if judgment.outcome is Outcome.NOT_MEASURED:
        return MutantOutcome(mutant.id, Fate.INCONCLUSIVE, judgment.reason)
    cut_short = [clause.reason for clause in judgment.with_outcome(Outcome.NOT_MEASURED) if clause.id == COMPLETES]
    if missed and cut_short:
        reason = f"it failed on {', '.join(failed)}, but before {', '.join(missed)} could be judged: {cut_short[0]}"
        return MutantOutcome(mutant.id, Fate.INCONCLUSIVE, reason, failed)
    if missed:
        reason = f"it failed on {', '.join(failed)}, but not on {', '.join(missed)}"
        return MutantOutcome(mutant.id, Fate.MISATTRIBUTED, reason, failed)
    return MutantOutcome(mutant.id, Fate.KILLED, "", failed)


def not_run(mutant: Mutant, reason: str) -> MutantOutcome:
    """A mutant that this machine cannot run, or that was skipped: never counted as killed."""
    return MutantOutcome(mutant.id, Fate.NOT_RUN, reason)


def interrupted(mutant: Mutant) -> MutantOutcome:
    """A mutant that waited for its turn when the run was interrupted."""
    return MutantOutcome(mutant.id, Fate.INTERRUPTED, "the run was interrupted")


def claim_verdict(judgment: Judgment, mutants: Sequence[MutantOutcome], *, skipped: bool = False) -> ClaimVerdict:
    """The verdict.

    Args:
        judgment: of the subject.
        mutants: what became of each.
        skipped: the user asked for no mutants; a PASS then stands, unproven.
    """
    fates = {mutant.fate for mutant in mutants}
    proven = Fate.KILLED in fates and fates <= {Fate.KILLED, Fate.NOT_RUN}
    if judgment.outcome is Outcome.FAIL:
        return ClaimVerdict(Verdict.FAIL, judgment.reason, proven)
    if judgment.outcome is Outcome.NOT_MEASURED:
        return ClaimVerdict(Verdict.NOT_MEASURED, judgment.reason, proven)
    lived = [mutant for mutant in mutants if mutant.fate in (Fate.SURVIVED, Fate.MISATTRIBUTED)]
    if lived:
        return ClaimVerdict(Verdict.VOID, f"mutant {lived[0].id} {lived[0].fate}: {lived[0].reason}", False)
    unsure = [mutant for mutant in mutants if mutant.fate is Fate.INCONCLUSIVE]
    if unsure:
        return ClaimVerdict(Verdict.NOT_MEASURED, f"mutant {unsure[0].id} is inconclusive: {unsure[0].reason}", False)
    kept = [mutant for mutant in mutants if mutant.fate is Fate.INTERRUPTED]
    if kept:
        return ClaimVerdict(Verdict.NOT_MEASURED, f"mutant {kept[0].id} was not run: {kept[0].reason}", False)
    if skipped:
        return ClaimVerdict(Verdict.PASS, "unproven: the mutants were skipped", False)
    if not proven:
        reason = mutants[0].reason if mutants else "there is none"
        return ClaimVerdict(Verdict.NOT_MEASURED, f"no mutant could run here: {reason}", False)
    return ClaimVerdict(Verdict.PASS, "", True)
