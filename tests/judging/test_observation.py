"""Observations: a file keeps all of one, and other documents are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base import schemas, strictjson
from harness.base.device import Device
from harness.base.schemas import DocumentError
from harness.base.vocabulary import Phase
from harness.judging.observation import Ending, EndingKind, Observation, Residency
from tests.strategies import json_values

CPU = Device("cpu", "x86_64")
PLAIN = Observation("toy:Sorter", "full", {}, CPU, {})

_maybe_text = st.none() | st.text(max_size=4)
_bytes = st.none() | st.integers(0, 2**60)
_named = st.dictionaries(st.text(max_size=4), json_values, max_size=2)
_observations = st.builds(
    Observation,
    subject=st.text(max_size=4),
    profile=st.sampled_from(["full", "reduced"]),
    parameters=_named,
    device=st.just(CPU) | st.just(Device("cuda", "a GPU", "9.0", 1 << 30, "NVML", False, "GPU-0")),
    measurements=_named,
    resolved=st.fixed_dictionaries({}, optional={"device": st.text(max_size=4), "steps": st.integers(0, 9)}),
    residency=st.builds(Residency, _bytes, st.none() | st.booleans(), _bytes, _maybe_text),
    ending=st.builds(
        Ending,
        kind=st.sampled_from(EndingKind),
        phase=st.sampled_from(Phase),
        reason=st.text(max_size=4),
        exit_code=st.none() | st.integers(0, 255),
        signal=_maybe_text,
        traceback=_maybe_text,
    ),
    seed=st.integers(0, 2**40),
    unseen=st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2),
)


@given(_observations)
def test_nothing_is_lost_in_a_file(observation: Observation) -> None:
    """Any measurements and any ending survive a file, also numbers that are not finite."""
    document = strictjson.loads(strictjson.dumps(observation.to_json()))
    found = Observation.from_json(document)
    assert found.to_json() == document == observation.to_json()
    whole = {
        "parameters": {},
        "measurements": {},
    }  # a file does not keep the value of an integer too large for a double
    assert replace(found, **whole) == replace(observation, **whole)
    assert isinstance(found.ending.kind, EndingKind)
    assert isinstance(found.ending.phase, Phase)


def test_the_form_of_a_file() -> None:
    """Unknown values are left out of `ending` and are null in `residency`; an empty `unseen` is left out."""
    expected: dict[str, Any] = {
        "subject": "toy:Sorter",
        "profile": "full",
        "seed": 0,
        "parameters": {},
        "device": {"type": "cpu", "name": "x86_64"},
        "measurements": {},
        "resolved": {},
        "residency": {"allocator_peak_bytes": None, "driver_seen": None, "driver_peak_bytes": None, "reason": None},
        "ending": {"kind": "completed", "phase": "falsifier", "reason": ""},
    }
    assert PLAIN.to_json() == expected
    assert replace(PLAIN, unseen={"loss": "no log"}).to_json() == {**expected, "unseen": {"loss": "no log"}}


def test_a_document_that_is_read_stays_as_it_is() -> None:
    """`from_json` does not change its argument."""
    document = PLAIN.to_json()
    Observation.from_json(document)
    assert document == PLAIN.to_json()


def test_what_is_no_observation_is_refused_with_the_places() -> None:
    """The message has the first five problems."""
    document = {**PLAIN.to_json(), "seed": -1, "profile": "half", "surprise": 1}
    with pytest.raises(DocumentError) as refused:
        Observation.from_json(document)
    found = schemas.problems("observation", document)
    assert [problem.pointer for problem in found] == ["/surprise", "/profile", "/seed"]
    assert str(refused.value) == "; ".join(map(str, found))
    with pytest.raises(DocumentError) as refused:
        Observation.from_json({**document, "ending": 1, "residency": 1, "parameters": 1, "measurements": 1})
    assert len(str(refused.value).split("; ")) == 5


@pytest.mark.parametrize("ending", [{"kind": "well"}, {"phase": "lunch"}])
def test_an_ending_of_another_kind_is_refused(ending: dict[str, str]) -> None:
    """An unknown kind or phase, as of a later version, is refused."""
    document = PLAIN.to_json()
    with pytest.raises(DocumentError, match=f"/ending/{next(iter(ending))}"):
        Observation.from_json({**document, "ending": {**document["ending"], **ending}})
