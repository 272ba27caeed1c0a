"""Only sizes decide which clauses are judged, so judging again gives the result of the sealing."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.vocabulary import Fate, Verdict
from harness.contract.reasons import ReasonCode
from harness.evidence.bundle import Bundle
from harness.evidence.verification import verify
from harness.machine.limited_process import Limits
from tests.contracts import document, healthy
from tests.evidence.factory import MUTANTS, claim_result, contract_in, mutant_lines, sealer

SLOW = {
    "id": "slow",
    "rule": "self.values.all(one, self.values.all(other, one == other || one - other != 0.5))",
    "message": "slow",
}


@pytest.mark.parametrize(("count", "verdict"), [(60_000, Verdict.NOT_MEASURED), (300, Verdict.PASS)])
def test_verify_accepts_what_was_sealed(tmp_path: Path, count: int, verdict: Verdict) -> None:
    """Two nested macros over 60,000 items would take ten minutes, so they are not evaluated."""
    contract = contract_in(tmp_path, rules=[*document()["rules"], SLOW])
    values = [float(number) for number in range(count)]
    result = claim_result(tmp_path, contract=contract, measurements=healthy(values=values))
    bundle = sealer(tmp_path).seal(result)
    verification = verify(bundle, Limits(seconds=20))
    assert verification.findings == ()
    assert verification.verdict is verdict
    slow = next(clause for clause in Bundle(bundle).record.clauses if clause.id == "slow")
    assert (slow.reason and slow.reason.code) == (ReasonCode.TOO_COSTLY if verdict is not Verdict.PASS else None)


def test_what_takes_long_to_judge_again_is_sealed_whole(tmp_path: Path) -> None:
    """Sealing cannot be ended, so it judges nothing costly. A killed mutant keeps all of its measurements."""
    mutants = [{**mutant, "violates": ["nothing-lost", "slow"]} for mutant in MUTANTS[:1]]
    contract = contract_in(tmp_path, rules=[*document()["rules"], SLOW], mutants=mutants)
    values = [*(float(number) for number in range(500)), 0.5]
    result = claim_result(tmp_path, contract=contract, mutants={"forgets-one": {"returned": 2, "values": values}})
    bundle = sealer(tmp_path).seal(result)
    assert [mutant.fate for mutant in Bundle(bundle).record.mutants] == [Fate.KILLED]
    assert mutant_lines(bundle)["forgets-one"]["left_out"] == []
    assert verify(bundle).findings == ()
