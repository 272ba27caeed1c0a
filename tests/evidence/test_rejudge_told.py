"""Judging again without a bundle: each single difference gives exactly its own finding."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.base.device import Device
from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract import Contract
from harness.contract.bound import Bound
from harness.evidence.findings import Code
from harness.evidence.rejudge import Rejudgment, rejudge
from harness.judging.observation import Observation
from harness.judging.record import Record
from tests.evidence.factory import claim_result

RECORD, OBSERVATION, MUTANTS = "record.json", "observation.json", "mutants.jsonl"
FORGETS = "/forgets-one/observation"
Judged = tuple[Record, Contract, Observation, Mapping[str, Observation]]
Told = list[tuple[str, str]]


def parts(folder: Path, **changes: Any) -> Judged:
    """The parsed parts of a bundle of the tiny claim."""
    result = claim_result(folder, **changes)
    seen = {name: one.observation for name, one in result.mutants.items()}
    return result.record, result.contract, result.subject.observation, seen


seen_here: list[str] = []
"""The findings that a test has made."""


@pytest.fixture(autouse=True)
def recorded(snapshot: SnapshotAssertion) -> Iterator[None]:
    """Compare every finding of a test, with its fields, with a snapshot."""
    seen_here.clear()
    yield
    if seen_here:
        assert seen_here == snapshot


def told(rejudgment: Rejudgment) -> Told:
    """The file and the place of every finding. Every code is REJUDGED_DIFFERENTLY."""
    assert {one.code for one in rejudgment.findings} <= {Code.REJUDGED_DIFFERENTLY}
    seen_here.extend(f"{one} {one.detail} {json.dumps(one.fields, default=str)}" for one in rejudgment.findings)
    return [(one.file, one.pointer) for one in rejudgment.findings]


@pytest.fixture
def sound(tmp_path: Path) -> Judged:
    """A PASS, proven by two mutants. The third one needs a GPU."""
    return parts(tmp_path)


def test_a_sound_bundle_says_again_what_it_said(sound: Judged) -> None:
    """Verdict, proof and the fate of each mutant are as recorded."""
    again = rejudge(*sound)
    assert told(again) == []
    assert (again.claim.verdict, again.claim.proven) == (Verdict.PASS, True)
    assert again.mutants == {"forgets-one": Fate.KILLED, "stops-early": Fate.KILLED, "silent-fallback": Fate.NOT_RUN}


def _clause(index: int, **changes: Any) -> Callable[[Record], dict[str, Any]]:
    def change(record: Record) -> dict[str, Any]:
        one = replace(record.clauses[index], **changes)
        return {"clauses": (*record.clauses[:index], one, *record.clauses[index + 1 :])}

    return change


def _mutant(index: int, **changes: Any) -> Callable[[Record], dict[str, Any]]:
    def change(record: Record) -> dict[str, Any]:
        one = replace(record.mutants[index], **changes)
        return {"mutants": (*record.mutants[:index], one, *record.mutants[index + 1 :])}

    return change


CHANGES: dict[str, tuple[Callable[[Record], dict[str, Any]], Told]] = {
    "id": (
        lambda _: {"id": "F-OTHER-001"},
        [(RECORD, "/id")],
    ),
    "issue": (
        lambda _: {"issue": "X-1"},
        [(RECORD, "/issue")],
    ),
    "a long title": (
        lambda _: {"title": "x" * 119},
        [(RECORD, "/title")],
    ),
    "a title that just fits": (
        lambda _: {"title": "x" * 118},
        [(RECORD, "/title")],
    ),
    "digest": (
        lambda _: {"contract_digest": "0"},
        [(RECORD, "/contract_digest")],
    ),
    "resolved": (
        lambda record: {"resolved": {**record.resolved, "steps": 3.0}},
        [
            (
                RECORD,
                "/resolved",
            ),
        ],
    ),
    "requested": (
        lambda _: {"requested": {"steps": 4, "device": "cpu"}},
        [
            (
                RECORD,
                "/requested",
            ),
        ],
    ),
    "unjudged": (
        lambda _: {"unjudged": ("ordered",)},
        [(RECORD, "/unjudged")],
    ),
    "verdict and proven": (
        lambda _: {"verdict": Verdict.VOID, "proven": False},
        [
            (RECORD, "/verdict"),
            (RECORD, "/proven"),
        ],
    ),
    "a clause's outcome": (
        _clause(0, outcome=Outcome.FAIL),
        [(RECORD, "/clauses/0/outcome")],
    ),
    "a clause's bound": (
        _clause(2, bound=Bound("const", 4)),
        [
            (
                RECORD,
                "/clauses/2/bound",
            )
        ],
    ),
    "a clause's unit": (
        _clause(2, unit="B"),
        [(RECORD, "/clauses/2/unit")],
    ),
    "a clause of another name": (
        _clause(2, id="resolved.dtype"),
        [
            (RECORD, "/clauses"),
            (RECORD, "/clauses/2"),
        ],
    ),
    "a clause twice": (
        lambda record: {"clauses": (*record.clauses, replace(record.clauses[1]))},
        [(RECORD, "/clauses/1")],
    ),
    "a mutant's subject": (
        _mutant(1, subject="a:B"),
        [(RECORD, "/mutants/1/subject")],
    ),
    "a mutant's fate": (
        _mutant(0, fate=Fate.SURVIVED),
        [(RECORD, "/mutants/0/fate")],
    ),
    "what a mutant failed": (
        _mutant(1, failed=()),
        [
            (
                RECORD,
                "/mutants/1/failed",
            ),
        ],
    ),
    "the value that killed a mutant": (
        _mutant(1, values={"subject.completes": "completed"}),
        [(RECORD, "/mutants/1/values")],
    ),
    "a mutant that is not the contract's": (
        lambda record: {"mutants": (*record.mutants, replace(record.mutants[2], id="ghost"))},
        [(RECORD, "/mutants/3")],
    ),
    "a mutant twice": (
        lambda record: {"mutants": (*record.mutants, record.mutants[2])},
        [(RECORD, "/mutants")],
    ),
    "mutants in another order": (
        lambda record: {"mutants": record.mutants[::-1]},
        [(RECORD, "/mutants")],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_record_that_says_otherwise(sound: Judged, change: str) -> None:
    """The finding has the recorded value, and the value that follows from contract and observations."""
    record, contract, *rest = sound
    make, expected = CHANGES[change]
    found = told(rejudge(replace(record, **make(record)), contract, *rest))
    assert found == expected


def test_a_record_of_another_seed_profile_and_device(sound: Judged) -> None:
    """Seed, profile and device are compared with the subject's observation and with each mutant's."""
    record, contract, observation, seen = sound
    others = {name: replace(one, seed=7) for name, one in seen.items()}
    assert told(rejudge(replace(record, seed=7), contract, observation, others)) == [
        (RECORD, "/seed"),
    ]
    assert told(rejudge(record, contract, observation, {**seen, "forgets-one": others["forgets-one"]})) == [
        (MUTANTS, f"{FORGETS}/seed"),
    ]
    assert told(rejudge(record, contract, replace(observation, profile="full"), seen)) == [
        (RECORD, "/profile"),
    ]
    elsewhere = replace(observation, device=replace(observation.device, name="another"))
    assert told(rejudge(record, contract, elsewhere, seen)) == [
        (RECORD, "/device"),
    ]
    alone = replace(contract, profiles={"reduced": contract.profiles["reduced"]})
    full = {name: replace(one, profile="full") for name, one in seen.items()}
    found = told(rejudge(replace(record, profile="full"), alone, replace(observation, profile="full"), full))
    assert (RECORD, "/profile") in found
    assert {place for _, place in found} == {"/profile", f"{FORGETS}/parameters"}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"steps": 3, "size": 1},
        {"steps": 4, **dict.fromkeys(("size", "model", "beam", "heads"), 1)},
        {"steps": 3.0},
    ],
)
def test_other_parameters_than_profile_and_overrides_give(sound: Judged, parameters: dict[str, Any]) -> None:
    """Other parameters than profile and overrides give are a finding, for the subject and for a mutant."""
    record, contract, observation, seen = sound
    found = told(rejudge(record, contract, replace(observation, parameters=parameters), seen))
    assert (OBSERVATION, "/parameters") in found
    others = {**seen, "forgets-one": replace(seen["forgets-one"], parameters=parameters)}
    found = told(rejudge(record, contract, observation, others))
    assert (MUTANTS, f"{FORGETS}/parameters") in found


def test_parameters_are_the_profiles_the_overrides_and_the_subjects_own(tmp_path: Path) -> None:
    """Each source of parameters overrides the one before. A mutant has its own parameters, and the same overrides."""
    record, contract, observation, seen = parts(tmp_path, overrides={"steps": 5})
    assert told(rejudge(record, contract, observation, seen)) == []
    own = replace(record, subject_parameters={"trainer": "t.toml"})
    theirs = replace(observation, parameters={**observation.parameters, "trainer": "t.toml"})
    assert told(rejudge(own, contract, theirs, seen)) == []
    assert told(rejudge(own, contract, observation, seen)) == [
        (OBSERVATION, "/parameters"),
    ]


@pytest.mark.parametrize("fate", list(Fate))
def test_a_mutant_without_its_observation(sound: Judged, fate: Fate) -> None:
    """A mutant that ran has an observation. A mutant that did not run is believed, and proves nothing."""
    record, contract, observation, seen = sound
    one = replace(record.mutants[0], fate=fate, reason=None, failed=())
    rest = {name: there for name, there in seen.items() if name != "forgets-one"}
    again = rejudge(replace(record, mutants=(one, *record.mutants[1:])), contract, observation, rest)
    missing = [found.file for found in again.findings if found.code is Code.INCOMPLETE]
    if fate is Fate.INCONCLUSIVE or not fate.has_run:
        assert missing == []
        told(again)
        assert again.mutants["forgets-one"] is fate
    else:
        assert missing == [MUTANTS]
        assert again.mutants["forgets-one"] is Fate.INCONCLUSIVE
    there = [(found.file, found.pointer) for found in again.findings]
    assert ((RECORD, "/mutants/0/fate") in there) is (fate is Fate.NOT_RUN)


def test_a_mutant_that_the_record_leaves_out(sound: Judged) -> None:
    """A mutant that the record leaves out is judged from its observation.

    Without an observation, its fate is unknown.
    """
    record, contract, observation, seen = sound
    for position, (one, place) in enumerate((("forgets-one", 1), ("stops-early", 1), ("silent-fallback", 2))):
        left = tuple(mutant for mutant in record.mutants if mutant.id != one)
        again = rejudge(replace(record, mutants=left), contract, observation, seen)
        found = told(again)
        assert found[0] == (RECORD, "/mutants")
        if one == "silent-fallback":
            assert again.mutants[one] is Fate.INCONCLUSIVE
        else:
            assert found[1] == (RECORD, f"/mutants/{position}/fate")
            assert len(found) == place + 3


def test_what_came_out_worse_is_found_in_every_place(sound: Judged) -> None:
    """A clause, a mutant and the verdict each have a finding."""
    record, contract, observation, seen = sound
    worse = replace(observation, measurements={**observation.measurements, "returned": 2})
    healed = {**seen, "forgets-one": replace(seen["forgets-one"], measurements=observation.measurements)}
    assert [clause.id for clause in record.clauses][5::7] == ["returned.type", "nothing-lost"]
    assert told(rejudge(record, contract, worse, healed)) == [
        (RECORD, "/clauses/5/value"),
        (RECORD, "/clauses/6/value"),
        (RECORD, "/clauses/12/outcome"),
        (RECORD, "/clauses/12/value"),
        (RECORD, "/clauses/12/reason"),
        (RECORD, "/mutants/0/fate"),
        (RECORD, "/mutants/0/failed"),
        (RECORD, "/mutants/0/values"),
        (RECORD, "/mutants/0/reason"),
        (RECORD, "/verdict"),
        (RECORD, "/proven"),
        (RECORD, "/reason"),
    ]


@pytest.mark.parametrize(
    ("requires", "device", "could"),
    [
        ({}, {}, True),
        ({"device": "any"}, {}, True),
        ({"device": "cuda"}, {}, False),
        ({"device": "cuda"}, {"type": "cuda"}, True),
        *(({name: 1}, {"type": "cuda", "memory_bytes": 1 << 50}, False) for name in ("gpus", "disk_gib", "vulkan")),
        ({"modules": ["triton"]}, {}, False),
        ({"memory_gib": 2}, {"memory_bytes": 2 << 30}, True),
        ({"memory_gib": 2}, {"memory_bytes": (2 << 30) - 1}, False),
        ({"memory_gib": 2}, {"memory_bytes": None}, False),
        ({}, {"memory_bytes": None}, True),
        ({"compute_capability": "9.0"}, {"compute_capability": "9.0"}, True),
        ({"compute_capability": "9.0"}, {"compute_capability": "8.9"}, False),
        ({"compute_capability": "9.0"}, {"compute_capability": "10.0"}, True),
        ({"compute_capability": "12.1"}, {"compute_capability": "12.0"}, False),
        ({"compute_capability": "0.1"}, {"compute_capability": None}, False),
        ({"compute_capability": "9.0"}, {"compute_capability": "odd"}, False),
        ({"compute_capability": "0.5"}, {"compute_capability": "odd.odd"}, False),
        ({"compute_capability": "9.0"}, {"compute_capability": "9.²"}, True),  # not a digit that int() reads
    ],
)
def test_what_the_device_could_have_run_is_not_excused(
    sound: Judged, requires: dict[str, Any], device: dict[str, Any], could: bool
) -> None:
    """Only the device's recorded fields excuse a mutant. A mutant on an omitted clause need not run."""
    record, contract, observation, seen = sound
    mutants = (*contract.mutants[:2], replace(contract.mutants[2], requires=requires, violates=("ordered",)))
    there = Device(**{"type": "cpu", "name": "a CPU", **device})
    asked = replace(contract, mutants=mutants)
    proven = replace(observation, device=there, resolved={**observation.resolved, "device": there.type})
    found = told(rejudge(record, asked, proven, seen))
    assert ((RECORD, "/mutants/2/fate") in found) is could
    omitting = replace(contract.profiles["reduced"], omits=frozenset({"smallest"}))
    asked = replace(asked, profiles={**contract.profiles, "reduced": omitting})
    assert (RECORD, "/mutants/2/fate") not in told(rejudge(record, asked, _without(proven, "smallest"), seen))


def _without(observation: Observation, name: str) -> Observation:
    measurements = {key: value for key, value in observation.measurements.items() if key != name}
    return replace(observation, measurements=measurements)


@pytest.mark.parametrize(("length", "shown"), [(1, 'x"'), (118, "x" * 118 + '"'), (119, "x" * 118 + "…")])
def test_a_long_value_is_cut_in_a_finding(sound: Judged, length: int, shown: str) -> None:
    """A long value is cut at 120 characters of its JSON."""
    record, *others = sound
    again = rejudge(replace(record, title="x" * length), *others)
    assert told(again) == [(RECORD, "/title")]
    (finding,) = again.findings
    assert finding.fields["then"] == f'"{shown}'


def test_the_order_of_names_does_not_matter(sound: Judged) -> None:
    """The order of names is ignored, because JSON objects have none."""
    record, *others = sound
    assert len(record.requested) > 1
    assert rejudge(replace(record, requested=dict(reversed(record.requested.items()))), *others).findings == ()
