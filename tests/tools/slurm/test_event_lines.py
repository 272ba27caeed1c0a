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
from harness.running import events
from harness.tools.slurm.event_lines import NoEventError, decode, encode, lines_to
from tests.contracts import healthy, observe
from tests.evidence.factory import claim_result

NUMBERS = st.floats(allow_nan=False) | st.integers(min_value=-(2**1000), max_value=2**1000)


def there_and_back(event: events.Event, *contracts: Contract) -> Any:
    """The event after encoding and decoding."""
    line = encode(event)
    assert "\n" not in line
    return decode(line + "\n", {contract.id: contract for contract in contracts})


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


def test_the_line_of_a_result_says_only_where_the_bundle_is(contract: Contract, tmp_path: Path) -> None:
    """A verdict comes from the bundle alone."""
    record = claim_result(tmp_path).record
    judgment = judge(contract, observe(healthy()))
    stream = io.StringIO()
    write = lines_to(stream)
    write(events.TrialFinished(contract.id, "subject", judgment, None, 1.5))
    write(events.ClaimFinished(record, tmp_path))
    write(events.ClaimFinished(record, None, unsealed="a scaffold"))
    full = replace(record, reason=Reason(ReasonCode.UNSEALED, text="no space"))
    write(events.ClaimFinished(full, tmp_path))
    assert "PASS" not in stream.getvalue()
    *told, unsealed = (decode(line, {}) for line in stream.getvalue().splitlines())
    assert told == [
        events.TrialPhase(contract.id, "subject", "ended"),
        events.ClaimEnded(record.id, record.run),
        events.ClaimEnded(record.id, record.run, "a scaffold"),
    ]
    assert isinstance(unsealed, events.ClaimEnded)
    assert unsealed.unsealed


@pytest.mark.parametrize(
    "line", ["", "hello", "[]", "{}", '{"event": "RunAway"}', '{"event": "TrialStep"}', '{"event": "ClaimFinished"}']
)
def test_what_is_no_event(line: str) -> None:
    """Other output of a job is not an event."""
    with pytest.raises(NoEventError, match="is not an event"):
        decode(line, {})


def test_a_line_is_too_long_to_be_parsed() -> None:
    """Few characters make many objects, so the length is looked at first."""
    stream = io.StringIO()
    lines_to(stream)(events.TrialPhase("F-DEMO-A-001", "subject", "ended"))
    line = stream.getvalue()
    assert decode(line, {}) == events.TrialPhase("F-DEMO-A-001", "subject", "ended")
    with pytest.raises(NoEventError, match="characters"):
        decode(line + " " * (4 << 20), {})


def test_a_handler_writes_a_line_an_event() -> None:
    """The last line has the exit status."""
    stream = io.StringIO()
    write = lines_to(stream)
    write(events.ClaimWaiting("F-A-001", ("another",)))
    write(events.RunFinished(1, (), 1.0, False))
    assert len(stream.getvalue().splitlines()) == 1
