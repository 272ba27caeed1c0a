"""Derives the verdict from judgments: the fate of each mutant, and whether the subject's PASS is proven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.base.json_dataclass import JsonDataclass
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract import Mutant
from harness.contract.model import COMPLETES
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.judge import Judgment

__all__ = ["ClaimVerdict", "MutantOutcome", "claim_verdict", "fate_of", "interrupted", "not_run"]


@dataclass(frozen=True)
class MutantOutcome(JsonDataclass):
    """The fate of one mutant, and its reason."""

    id: str
    fate: Fate
    reason: Reason | None = None
    failed: tuple[str, ...] = ()
    """The clauses that it failed on. Those that the contract names for it come first."""
    values: JsonObject = field(default_factory=dict)
    """The value that decided each clause of `failed`."""


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict on a claim."""

    verdict: Verdict
    reason: Reason | None
    proven: bool
    """Whether at least one mutant was killed, and all others were killed or could not run."""


def fate_of(mutant: Mutant, judgment: Judgment) -> MutantOutcome:
    """Return the fate of a mutant. It is killed only if it fails on all clauses that the contract names for it.

    If something other than the mutant ended the trial early, it is inconclusive, because clauses are unknown.
    """
    failing = {clause.id: clause.value for clause in judgment.with_outcome(Outcome.FAIL)}
    failed = tuple(sorted(failing, key=lambda clause: clause not in mutant.violates))
    values = {clause: failing[clause] for clause in failed}
    missed = [clause for clause in mutant.violates if clause not in failed]
    if judgment.outcome is Outcome.PASS:
        return MutantOutcome(mutant.id, Fate.SURVIVED, Reason(ReasonCode.PASSED))
    if judgment.outcome is Outcome.NOT_MEASURED:
        return MutantOutcome(mutant.id, Fate.INCONCLUSIVE, judgment.reason)
    cut_short = [clause.reason for clause in judgment.with_outcome(Outcome.NOT_MEASURED) if clause.id == COMPLETES]
    if missed:
        code, cause = (ReasonCode.CUT_SHORT, cut_short[0]) if cut_short else (ReasonCode.OTHER_CLAUSES, None)
        reason = Reason(code, clauses=failed, missed=tuple(missed), cause=cause)
        return MutantOutcome(mutant.id, Fate.INCONCLUSIVE if cut_short else Fate.MISATTRIBUTED, reason, failed, values)
    return MutantOutcome(mutant.id, Fate.KILLED, None, failed, values)


def not_run(mutant: Mutant, reason: Reason) -> MutantOutcome:
    """Return the outcome of a mutant that cannot run here or was skipped. It never counts as killed."""
    return MutantOutcome(mutant.id, Fate.NOT_RUN, reason)


def interrupted(mutant: Mutant) -> MutantOutcome:
    """Return the outcome of a mutant that had not started when the run was interrupted."""
    return MutantOutcome(mutant.id, Fate.INTERRUPTED, Reason(ReasonCode.INTERRUPTED))


def claim_verdict(judgment: Judgment, mutants: Sequence[MutantOutcome], *, skipped: bool = False) -> ClaimVerdict:
    """Return the verdict on a claim.

    Args:
        judgment: the judgment of the subject.
        mutants: the outcomes of all mutants.
        skipped: whether the user skipped the mutants. A PASS then stands, unproven.
    """
    fates = {mutant.fate for mutant in mutants}
    proven = Fate.KILLED in fates and fates <= {Fate.KILLED, Fate.NOT_RUN}
    if judgment.outcome is Outcome.FAIL:
        return ClaimVerdict(Verdict.FAIL, judgment.reason, proven)
    if judgment.outcome is Outcome.NOT_MEASURED:
        return ClaimVerdict(Verdict.NOT_MEASURED, judgment.reason, proven)
    for kinds, verdict in (
        ((Fate.SURVIVED, Fate.MISATTRIBUTED), Verdict.VOID),
        ((Fate.INCONCLUSIVE,), Verdict.NOT_MEASURED),
        ((Fate.INTERRUPTED,), Verdict.NOT_MEASURED),
    ):
        for mutant in mutants:
            if mutant.fate in kinds:
                reason = Reason(ReasonCode.MUTANT, mutant=mutant.id, fate=mutant.fate, cause=mutant.reason)
                return ClaimVerdict(verdict, reason, False)
    if skipped:
        return ClaimVerdict(Verdict.PASS, Reason(ReasonCode.UNPROVEN), False)
    if not proven:
        reason = Reason(ReasonCode.NO_MUTANT, cause=mutants[0].reason if mutants else None)
        return ClaimVerdict(Verdict.NOT_MEASURED, reason, False)
    return ClaimVerdict(Verdict.PASS, None, True)
