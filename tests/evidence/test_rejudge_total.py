"""Judging again is total: a bundle is not trusted, and every defect in it becomes a finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.device import Device
from harness.base.vocabulary import Verdict
from harness.evidence.rejudge import rejudge
from harness.evidence.seal import ClaimResult
from tests.contracts import healthy
from tests.evidence.factory import MUTANTS, claim_result, contract_in
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
    mutants = {name: replace(one.observation, device=device) for name, one in result.mutants.items()}
    again = rejudge(replace(result.record, **strange), result.contract, observation, mutants)
    assert again.claim.verdict in Verdict
    assert again.findings or again.claim.verdict is result.record.verdict
