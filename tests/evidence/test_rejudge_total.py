"""Judging again is total and bounded: every defect of a bundle becomes a finding, and sizes decide what is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.device import Device
from harness.base.vocabulary import Verdict
from harness.contract.reasons import ReasonCode
from harness.evidence.bundle import Bundle
from harness.evidence.rejudge import rejudge
from harness.evidence.seal import ClaimResult
from harness.evidence.verification import verify
from harness.machine.limited_process import Limits
from tests.contracts import document, healthy
from tests.evidence.factory import MUTANTS, claim_result, contract_in, sealer
from tests.strategies import json_values

REQUIRES = {"device": "any", "compute_capability": "9.0", "memory_gib": 1}
DEVICES = st.builds(
    Device,
    type=st.sampled_from(["cpu", "cuda"]),
    name=st.text(max_size=4),
    compute_capability=st.none() | st.lists(st.text("19²٣x", max_size=2), max_size=3).map(".".join),
    memory_bytes=st.sampled_from([1 << 40, 1 << 30, 0, None]),
)
"""Devices that the schema of an observation allows and no machine has."""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> ClaimResult:
    """A PASS, proven by two mutants. The third one did not run, because the machine lacks its device."""
    folder = tmp_path_factory.mktemp("rejudge")
    contract = contract_in(folder, mutants=[*MUTANTS[:2], {**MUTANTS[2], "requires": REQUIRES}])
    return claim_result(folder, contract=contract)


@given(DEVICES, st.dictionaries(st.text(max_size=4), json_values, max_size=3), json_values, json_values)
def test_judging_again_never_raises(
    result: ClaimResult, device: Device, parameters: dict[str, Any], resolved: Any, returned: Any
) -> None:
    """This holds for any device, request, resolved values and measurements."""
    strange = {"device": device, "resolved": {"steps": resolved}}
    observation = replace(
        result.subject.observation, **strange, parameters=parameters, measurements=healthy(returned=returned)
    )
    mutants = {name: replace(mutant.observation, device=device) for name, mutant in result.mutants.items()}
    again = rejudge(replace(result.record, **strange), result.contract, observation, mutants)
    assert again.claim.verdict in Verdict
    assert again.findings or again.claim.verdict is result.record.verdict


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
