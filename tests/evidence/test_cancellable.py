"""Judging that a signal can end."""

from __future__ import annotations

import os
from typing import Any

import pytest

from harness.contract import Contract
from harness.contract.reasons import ReasonCode
from harness.evidence import cancellable
from harness.evidence.cancellable import Unjudged, judged
from harness.judging.judge import judge
from harness.judging.observation import Observation
from tests.contracts import contract_of, document, healthy, observe


@pytest.fixture(scope="module")
def costly() -> tuple[Contract, Observation]:
    """A contract with a rule that takes too long for a process that cannot be ended, and an observation."""
    changed = document()
    changed["observation"]["properties"]["values"] |= {"maxItems": 700}
    nested = "self.values.all(one, self.values.exists(other, other == one))"
    changed["rules"].append({"id": "slow", "rule": nested, "message": "slow"})
    return contract_of(changed), observe(healthy(values=[float(number) for number in range(700)]))


def test_what_is_quick_is_judged_in_this_process(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cancellable, "isolated_all")
    observation = observe(healthy())
    assert judged(contract, observation) == judge(contract, observation)


def test_what_is_costly_is_judged_in_another(costly: tuple[Contract, Observation]) -> None:
    """Costly judging runs in another process, with the same result as in this one."""
    assert not judge(*costly, quick=True).is_whole
    here = judge(*costly)
    assert here.is_whole
    assert all(one.reason is None or one.reason.code is not ReasonCode.TOO_COSTLY for one in here.clauses)
    assert judged(*costly).to_json() == here.to_json()


def test_it_can_be_ended(costly: tuple[Contract, Observation], monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal ends the judging. The death of its process ends it too."""

    def dies(*_: Any, **options: Any) -> Any:
        return judge(*costly, quick=True) if options else os._exit(3)

    monkeypatch.setattr(cancellable, "judge", dies)
    with pytest.raises(Unjudged) as refused:
        judged(*costly)
    assert str(refused.value) == "its process ended without an answer"

    def hangs(*_: Any, **options: Any) -> Any:
        return judge(*costly, quick=True) if options else os.read(os.pipe()[0], 1)

    monkeypatch.setattr(cancellable, "judge", hangs)
    with pytest.raises(Unjudged) as refused:
        judged(*costly, ended=lambda: True)
    assert str(refused.value) == "was ended"
