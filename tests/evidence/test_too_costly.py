"""Sizes alone decide what is judged, so a bundle is judged again as it was judged when it was sealed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.vocabulary import Verdict
from harness.contract.reasons import ReasonCode
from harness.evidence.bundle import Bundle
from harness.evidence.isolation import Limits
from harness.evidence.verification import verify
from tests.contracts import document, healthy
from tests.evidence.factory import claim_result, contract_in, sealer

SLOW = {
    "id": "slow",
    "rule": "self.values.all(one, self.values.all(other, one == other || one - other != 0.5))",
    "message": "slow",
}


@pytest.mark.parametrize(("count", "verdict"), [(60_000, Verdict.NOT_MEASURED), (300, Verdict.PASS)])
def test_verify_accepts_what_was_sealed(tmp_path: Path, count: int, verdict: Verdict) -> None:
    """Two nested macros over 60,000 items would take ten minutes. Nothing begins to evaluate them."""
    contract = contract_in(tmp_path, rules=[*document()["rules"], SLOW])
    values = [float(number) for number in range(count)]
    result = claim_result(tmp_path, contract=contract, measurements=healthy(values=values))
    bundle = sealer(tmp_path).seal(result)
    verification = verify(bundle, Limits(seconds=20))
    assert verification.findings == ()
    assert verification.verdict is verdict
    slow = next(clause for clause in Bundle(bundle).record.clauses if clause.id == "slow")
    assert (slow.reason and slow.reason.code) == (ReasonCode.TOO_COSTLY if verdict is not Verdict.PASS else None)
