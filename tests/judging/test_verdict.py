"""From judgments to a verdict: every combination of a subject's outcome with the fates of two mutants."""

from __future__ import annotations

from itertools import product

import pytest

from harness.base.vocabulary import Fate, Outcome, Phase, Verdict
from harness.contract import Mutant
from harness.contract.clauses import ClauseResult
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Ending, EndingKind
from harness.judging.verdict import ClaimVerdict, MutantOutcome, claim_verdict, fate_of, interrupted, not_run
from tests.contracts import contract_of, document, healthy, observe

CONTRACT = contract_of(document())
_SO_IT_IS = Reason(ReasonCode.MISSING, "it")


def judged(**outcomes: Outcome) -> Judgment:
    """A judgment of clauses with these outcomes."""
    return Judgment(tuple(ClauseResult(name, outcome, reason=_SO_IT_IS) for name, outcome in outcomes.items()))


@pytest.mark.parametrize(("outcome", "first", "second"), list(product(Outcome, Fate, Fate)))
def test_every_combination(outcome: Outcome, first: Fate, second: Fate) -> None:
    """A PASS needs one killed mutant and none that survived, was misattributed or is inconclusive."""
    decided = claim_verdict(judged(clause=outcome), [MutantOutcome("a", first), MutantOutcome("b", second)])
    fates = {first, second}
    if outcome is not Outcome.PASS:
        expected = Verdict(outcome)
    elif fates & {Fate.SURVIVED, Fate.MISATTRIBUTED}:
        expected = Verdict.VOID
    elif fates & {Fate.INCONCLUSIVE, Fate.INTERRUPTED} or Fate.KILLED not in fates:
        expected = Verdict.NOT_MEASURED
    else:
        expected = Verdict.PASS
    assert decided.verdict is expected
    assert decided.proven is (Fate.KILLED in fates and fates <= {Fate.KILLED, Fate.NOT_RUN})
    assert bool(decided.reason) is (expected is not Verdict.PASS)


@pytest.mark.parametrize(("outcome", "first"), list(product(Outcome, Fate)))
def test_a_mutant_kept_from_running_by_an_interruption(outcome: Outcome, first: Fate) -> None:
    """Such a mutant leaves the falsifier unproven and a PASS NOT_MEASURED.

    A mutant that the machine cannot run does not.
    """
    waited = interrupted(Mutant("waited", "a:B", ("clause",), "", {}, {}))
    assert waited.fate is Fate.INTERRUPTED
    decided = claim_verdict(judged(clause=outcome), [MutantOutcome("a", first), waited])
    lived = outcome is Outcome.PASS and first in (Fate.SURVIVED, Fate.MISATTRIBUTED)
    expected = Verdict.VOID if lived else Verdict(outcome) if outcome is not Outcome.PASS else Verdict.NOT_MEASURED
    assert (decided.verdict, decided.proven) == (expected, False)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_without_mutants(outcome: Outcome) -> None:
    """Skipped mutants leave a PASS unproven. A claim without mutants never passes."""
    skipped = claim_verdict(judged(clause=outcome), [MutantOutcome("a", Fate.NOT_RUN)], skipped=True)
    assert (skipped.verdict, skipped.proven) == (Verdict(outcome), False)
    assert claim_verdict(judged(clause=outcome), []).verdict is not Verdict.PASS


def test_nothing_judged_is_not_a_pass() -> None:
    """A judgment without clauses is NOT_MEASURED."""
    assert claim_verdict(Judgment(()), [MutantOutcome("a", Fate.KILLED)]).verdict is Verdict.NOT_MEASURED


@pytest.mark.parametrize(("first", "second"), list(product(Outcome, Outcome)))
def test_a_mutant_is_killed_only_on_every_clause_named(first: Outcome, second: Outcome) -> None:
    """One failed clause is not enough if the contract names two."""
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
    """The mutant failed, but the falsifier has not shown that it detects this defect."""
    mutant = Mutant("m", "a:B", ("named",), "", {}, {})
    outcome = fate_of(mutant, judged(other=Outcome.FAIL, named=Outcome.PASS))
    assert (outcome.fate, outcome.failed) == (Fate.MISATTRIBUTED, ("other",))


@pytest.mark.parametrize(
    "ending", [EndingKind.KILLED, EndingKind.LOST, EndingKind.NOT_MEASURED, EndingKind.INTERRUPTED]
)
def test_a_mutant_that_was_cut_short_is_not_misattributed(ending: EndingKind) -> None:
    """It could have failed on more clauses later. Only if the mutant itself ended the trial is it misattributed."""
    mutant = Mutant("m", "a:B", ("nothing-lost",), "", {}, {})
    short = {"measurements": healthy(returned=...), "resolved": {"device": "cpu", "steps": 2}}
    outcome = fate_of(mutant, judge(CONTRACT, observe(**short, ending=Ending(ending, reason="so it was"))))
    assert outcome.fate is Fate.INCONCLUSIVE
    assert outcome.reason is not None
    assert outcome.reason.root.text == "so it was"
    died = judge(CONTRACT, observe(**short, ending=Ending(EndingKind.DIED, Phase.SUBJECT)))
    assert fate_of(mutant, died).fate is Fate.MISATTRIBUTED


def test_a_mutant_that_was_cut_short_after_all_that_was_asked_is_killed() -> None:
    """The mutant had failed on every named clause before its trial ended."""
    mutant = Mutant("m", "a:B", ("nothing-lost",), "", {}, {})
    ending = Ending(EndingKind.KILLED, reason="out of memory")
    outcome = fate_of(mutant, judge(CONTRACT, observe(healthy(returned=2), ending=ending)))
    values = {"nothing-lost": {"given": 3, "returned": 2}}
    assert outcome == MutantOutcome("m", Fate.KILLED, None, ("nothing-lost",), values)


_FAILED, _PASSED = Outcome.FAIL, Outcome.PASS


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ({"a": _PASSED, "b": _PASSED}, (Fate.SURVIVED, Reason(ReasonCode.PASSED), ())),
        (
            {"a": _PASSED, "b": Outcome.NOT_MEASURED},
            (Fate.INCONCLUSIVE, Reason(ReasonCode.CLAUSE, clauses=("b",), cause=_SO_IT_IS), ()),
        ),
        ({"a": _FAILED, "b": _FAILED, "c": _FAILED, "d": _FAILED}, (Fate.KILLED, None, ("b", "d", "a", "c"))),
        (
            {"a": _FAILED, "b": _PASSED, "c": _FAILED, "d": _PASSED},
            (
                Fate.MISATTRIBUTED,
                Reason(ReasonCode.OTHER_CLAUSES, clauses=("a", "c"), missed=("b", "d")),
                ("a", "c"),
            ),
        ),
        (
            {"subject.completes": Outcome.NOT_MEASURED, "a": _FAILED, "b": _PASSED, "c": _FAILED},
            (
                Fate.INCONCLUSIVE,
                Reason(ReasonCode.CUT_SHORT, clauses=("a", "c"), missed=("b", "d"), cause=_SO_IT_IS),
                ("a", "c"),
            ),
        ),
    ],
)
def test_what_became_of_a_mutant_in_full(
    outcomes: dict[str, Outcome], expected: tuple[Fate, Reason | None, tuple[str]]
) -> None:
    """The result has the fate, the reason, and the failed clauses. The clauses that the contract names come first."""
    mutant = Mutant("m", "a:B", ("b", "d"), "", {}, {})
    outcome = fate_of(mutant, judged(**outcomes))
    assert (outcome.fate, outcome.reason, outcome.failed, tuple(outcome.values)) == (*expected, expected[-1])


_REASONS = {
    Fate.KILLED: None,
    Fate.SURVIVED: Reason(ReasonCode.PASSED),
    Fate.INCONCLUSIVE: _SO_IT_IS,
    Fate.NOT_RUN: Reason(ReasonCode.REQUIREMENT, text="it requires CUDA"),
    Fate.INTERRUPTED: Reason(ReasonCode.INTERRUPTED),
}


def _because(mutant: str, fate: Fate) -> Reason:
    return Reason(ReasonCode.MUTANT, mutant=mutant, fate=fate, cause=_REASONS[fate])


@pytest.mark.parametrize(
    ("fates", "skipped", "expected"),
    [
        ([Fate.KILLED, Fate.SURVIVED], False, (Verdict.VOID, _because("b", Fate.SURVIVED), False)),
        ([Fate.INTERRUPTED, Fate.SURVIVED], False, (Verdict.VOID, _because("b", Fate.SURVIVED), False)),
        (
            [Fate.KILLED, Fate.INCONCLUSIVE, Fate.INCONCLUSIVE],
            False,
            (Verdict.NOT_MEASURED, _because("b", Fate.INCONCLUSIVE), False),
        ),
        ([Fate.INCONCLUSIVE], True, (Verdict.NOT_MEASURED, _because("a", Fate.INCONCLUSIVE), False)),
        ([Fate.KILLED, Fate.INTERRUPTED], False, (Verdict.NOT_MEASURED, _because("b", Fate.INTERRUPTED), False)),
        ([Fate.NOT_RUN], True, (Verdict.PASS, Reason(ReasonCode.UNPROVEN), False)),
        (
            [Fate.NOT_RUN, Fate.NOT_RUN],
            False,
            (Verdict.NOT_MEASURED, Reason(ReasonCode.NO_MUTANT, cause=_REASONS[Fate.NOT_RUN]), False),
        ),
        (
            [Fate.NOT_RUN],
            False,
            (Verdict.NOT_MEASURED, Reason(ReasonCode.NO_MUTANT, cause=_REASONS[Fate.NOT_RUN]), False),
        ),
        ([], False, (Verdict.NOT_MEASURED, Reason(ReasonCode.NO_MUTANT), False)),
        ([Fate.NOT_RUN, Fate.KILLED], False, (Verdict.PASS, None, True)),
    ],
)
def test_the_verdict_of_a_subject_that_passed_in_full(
    fates: list[Fate], skipped: bool, expected: tuple[Verdict, Reason | None, bool]
) -> None:
    """The result has the verdict, the reason, and whether the falsifier is proven."""
    outcomes = [MutantOutcome(name, fate, _REASONS[fate]) for name, fate in zip("abc", fates, strict=False)]
    assert claim_verdict(judged(clause=Outcome.PASS), outcomes, skipped=skipped) == ClaimVerdict(*expected)


def test_a_mutant_that_did_not_run() -> None:
    """It keeps the reason; an interruption is a reason of its own."""
    mutant = Mutant("m", "a:B", ("clause",), "", {}, {})
    lacking = Reason(ReasonCode.REQUIREMENT, text="it requires CUDA")
    assert not_run(mutant, lacking) == MutantOutcome("m", Fate.NOT_RUN, lacking)
    assert interrupted(mutant) == MutantOutcome("m", Fate.INTERRUPTED, Reason(ReasonCode.INTERRUPTED))


def test_the_reason_among_several_mutants() -> None:
    """An inconclusive mutant comes before an interrupted one, and the first that did not run before the others."""
    passed = judged(clause=Outcome.PASS)
    outcomes = [MutantOutcome("a", Fate.INTERRUPTED), MutantOutcome("b", Fate.INCONCLUSIVE)]
    reason = claim_verdict(passed, outcomes).reason
    assert reason == Reason(ReasonCode.MUTANT, mutant="b", fate=Fate.INCONCLUSIVE)
    causes = [Reason(ReasonCode.REQUIREMENT, text=text) for text in ("first", "second")]
    idle = [MutantOutcome(name, Fate.NOT_RUN, cause) for name, cause in zip("ab", causes, strict=True)]
    assert claim_verdict(passed, idle).reason == Reason(ReasonCode.NO_MUTANT, cause=causes[0])
