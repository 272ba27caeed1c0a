"""Events are the same after encoding as a line of JSON and decoding."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.device import Device
from harness.contract import Contract
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.judge import judge
from harness.judging.verdict import fate_of, not_run
from harness.running import events
from tests.contracts import healthy, observe
from tests.evidence.factory import claim_result

NUMBERS = st.floats(allow_nan=False) | st.integers(min_value=-(2**1000), max_value=2**1000)


def there_and_back(event: events.Event, *contracts: Contract) -> Any:
    """The event after encoding and decoding."""
    line = events.encode(event)
    assert "\n" not in line
    return events.decode(line + "\n", {contract.id: contract for contract in contracts})


@given(st.integers(min_value=0), st.dictionaries(st.text(), NUMBERS), st.none() | st.integers(min_value=0))
def test_steps(step: int, values: dict[str, float], memory: int | None) -> None:
    """Any names and numbers arrive, also infinities."""
    event = events.TrialStep("F-A-001", "subject", step, values, memory)
    assert there_and_back(event) == event


@given(st.text(), st.lists(st.text(), max_size=3).map(tuple), st.none() | st.integers())
def test_beginnings(text: str, texts: tuple[str, ...], steps: int | None) -> None:
    """The events around a trial arrive."""
    for event in (
        events.ClaimWaiting(text, texts),
        events.TrialStarted("F-A-001", text, steps),
        events.Remarked("F-A-001", text),
    ):
        assert there_and_back(event) == event


def test_a_plan(contract: Contract) -> None:
    """A line has only the id of the contract, because its reader has the contract."""
    event = events.ClaimPlanned(contract, "reduced", "no GPU", Device("cpu", "x86_64"), ("m",))
    assert there_and_back(event, contract) == event


@pytest.mark.parametrize("returned", [0, float("nan"), 10**400])
def test_judgments(contract: Contract, returned: float) -> None:
    """The judgments of subjects and mutants arrive, with values that JSON lacks."""
    judgment = judge(contract, observe(healthy(returned=returned)))
    mutant = contract.mutants[0]
    for outcome in (None, fate_of(mutant, judgment), not_run(mutant, Reason(ReasonCode.REQUIREMENT, text="no GPU"))):
        back = there_and_back(events.TrialFinished(contract.id, "subject", judgment, outcome, 1.5, "Traceback\n"))
        assert repr(back) == repr(there_and_back(back))
        assert back.judgment.outcome == judgment.outcome
        assert (back.mutant and replace(back.mutant, values={})) == (outcome and replace(outcome, values={}))
        assert back.traceback == "Traceback\n"


def test_a_record(tmp_path: Path) -> None:
    """The folder of the bundle arrives, if there is one."""
    record = claim_result(tmp_path).record
    for bundle in (tmp_path, None):
        event = events.ClaimFinished(record, bundle)
        assert there_and_back(event) == event


@pytest.mark.parametrize(
    "line", ["", "hello", "[]", "{}", '{"event": "RunAway"}', '{"event": "TrialStep"}', '{"event": "ClaimFinished"}']
)
def test_what_is_no_event(line: str) -> None:
    """Other output of a job is not an event."""
    with pytest.raises(events.NoEventError, match="is not an event"):
        events.decode(line, {})


def test_a_handler_writes_a_line_an_event() -> None:
    """The last line has the exit status."""
    stream = io.StringIO()
    write = events.lines_to(stream)
    write(events.ClaimWaiting("F-A-001", ("another",)))
    write(events.RunFinished(1, (), 1.0, False))
    assert len(stream.getvalue().splitlines()) == 1
