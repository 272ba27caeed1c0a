"""From judgments to a verdict: every combination of a subject's outcome with the fates of two mutants."""

from __future__ import annotations

from itertools import product

import pytest

from harness.contract import Mutant
from harness.contract.clauses import ClauseResult
from harness.judge import Judgment, judge
from harness.observation import Ending, EndingKind, Phase
from harness.settle import MutantOutcome, fate_of, not_begun, settle
from harness.verdict import Fate, Outcome, Verdict
from tests.contracts import contract_of, document, healthy, observe

CONTRACT = contract_of(document())


def judged(**outcomes: Outcome) -> Judgment:
    """A judgment of clauses with these outcomes."""
    return Judgment(tuple(ClauseResult(name, outcome, reason="so it is") for name, outcome in outcomes.items()))


@pytest.mark.parametrize(("outcome", "first", "second"), list(product(Outcome, Fate, Fate)))
def test_every_combination(outcome: Outcome, first: Fate, second: Fate) -> None:
    """A PASS needs a kill, and nothing that lived or that nobody knows of."""
    settlement = settle(judged(clause=outcome), [MutantOutcome("a", first), MutantOutcome("b", second)])
    fates = {first, second}
    if outcome is not Outcome.PASS:
        expected = Verdict(outcome)
    elif fates & {Fate.SURVIVED, Fate.MISATTRIBUTED}:
        expected = Verdict.VOID
    elif Fate.INCONCLUSIVE in fates or Fate.KILLED not in fates:
        expected = Verdict.NOT_MEASURED
    else:
        expected = Verdict.PASS
    assert settlement.verdict is expected
    assert settlement.proven is (Fate.KILLED in fates and fates <= {Fate.KILLED, Fate.NOT_RUN})
    assert bool(settlement.reason) is (expected is not Verdict.PASS)


@pytest.mark.parametrize(("outcome", "first"), list(product(Outcome, Fate)))
def test_a_mutant_kept_from_running_by_an_interruption(outcome: Outcome, first: Fate) -> None:
    """It was not run, and unlike one that the machine cannot run it leaves the falsifier unproven, and a PASS none."""
    waited = not_begun(Mutant("waited", "a:B", ("clause",), "", {}, {}))
    assert (waited.fate, waited.reason) == (Fate.NOT_RUN, "the run was interrupted")
    settlement = settle(judged(clause=outcome), [MutantOutcome("a", first), waited])
    lived = outcome is Outcome.PASS and first in (Fate.SURVIVED, Fate.MISATTRIBUTED)
    expected = Verdict.VOID if lived else Verdict(outcome) if outcome is not Outcome.PASS else Verdict.NOT_MEASURED
    assert (settlement.verdict, settlement.proven) == (expected, False)
    if outcome is Outcome.PASS and first in (Fate.KILLED, Fate.NOT_RUN):
        assert settlement.reason == "mutant waited was not run: the run was interrupted"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_without_mutants(outcome: Outcome) -> None:
    """Skipped mutants leave a PASS unproven; a claim that has none never passes."""
    skipped = settle(judged(clause=outcome), [MutantOutcome("a", Fate.NOT_RUN)], skipped=True)
    assert (skipped.verdict, skipped.proven) == (Verdict(outcome), False)
    assert settle(judged(clause=outcome), []).verdict is not Verdict.PASS


def test_nothing_judged_is_not_a_pass() -> None:
    """A judgment without clauses says nothing."""
    assert settle(Judgment(()), [MutantOutcome("a", Fate.KILLED)]).verdict is Verdict.NOT_MEASURED


@pytest.mark.parametrize(("first", "second"), list(product(Outcome, Outcome)))
def test_a_mutant_is_killed_only_on_every_clause_named(first: Outcome, second: Outcome) -> None:
    """One clause failed is not enough where the contract names two."""
    mutant = Mutant("m", "a:B", ("first", "second"), "", {}, {})
    fate = fate_of(mutant, judged(other=Outcome.PASS, first=first, second=second)).fate
    outcomes = {first, second}
    if outcomes == {Outcome.FAIL}:
        assert fate is Fate.KILLED
    elif Outcome.FAIL in outcomes:
        assert fate is Fate.MISATTRIBUTED
    else:
        assert fate is (Fate.SURVIVED if outcomes == {Outcome.PASS} else Fate.INCONCLUSIVE)


def test_a_mutant_that_fails_on_another_clause_is_misattributed() -> None:
    """It died, but the falsifier has not shown that it sees this defect."""
    mutant = Mutant("m", "a:B", ("named",), "", {}, {})
    outcome = fate_of(mutant, judged(other=Outcome.FAIL, named=Outcome.PASS))
    assert (outcome.fate, outcome.failed) == (Fate.MISATTRIBUTED, ("other",))


@pytest.mark.parametrize(
    "ending", [EndingKind.KILLED, EndingKind.LOST, EndingKind.NOT_MEASURED, EndingKind.INTERRUPTED]
)
def test_a_mutant_that_was_cut_short_is_not_misattributed(ending: EndingKind) -> None:
    """What it failed on is not all that it would have failed on; only its own death tells another reason."""
    mutant = Mutant("m", "a:B", ("nothing-lost",), "", {}, {})
    short = {"measurements": healthy(returned=...), "resolved": {"device": "cpu", "steps": 2}}
    outcome = fate_of(mutant, judge(CONTRACT, observe(**short, ending=Ending(ending, reason="so it was"))))
    assert outcome.fate is Fate.INCONCLUSIVE
    assert "so it was" in outcome.reason
    died = judge(CONTRACT, observe(**short, ending=Ending(EndingKind.DIED, Phase.SUBJECT)))
    assert fate_of(mutant, died).fate is Fate.MISATTRIBUTED
