"""Judging again, without a bundle around it: each difference alone, to the letter, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.device import Device
from harness.base.vocabulary import Fate, Outcome, Verdict
from harness.contract import Contract
from harness.evidence.findings import Code
from harness.evidence.rejudge import Rejudgment, rejudge
from harness.judging.observation import Observation
from harness.judging.record import Record
from tests.evidence.factory import claim_result

RECORD, OBSERVATION, FORGETS = "record.json", "observation.json", "mutants/forgets-one/observation.json"
Judged = tuple[Record, Contract, Observation, Mapping[str, Observation]]
Told = list[tuple[str, str, str]]


def parts(folder: Path, **changes: Any) -> Judged:
    """What a bundle of the tiny claim holds, read."""
    result = claim_result(folder, **changes)
    seen = {name: one.observation for name, one in result.mutants.items()}
    return result.record, result.contract, result.subject.observation, seen


def told(rejudgment: Rejudgment) -> Told:
    """The file, the place and the words of every finding, all of which say that it is judged differently."""
    assert {one.code for one in rejudgment.findings} <= {Code.REJUDGED_DIFFERENTLY}
    return [(one.file, one.pointer, one.message) for one in rejudgment.findings]


@pytest.fixture
def sound(tmp_path: Path) -> Judged:
    """A PASS, proven by two mutants; the third needs a GPU."""
    return parts(tmp_path)


def test_a_sound_bundle_says_again_what_it_said(sound: Judged) -> None:
    """The verdict, whether it is proven, and what became of each mutant."""
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
        [(RECORD, "/id", 'the record has "F-OTHER-001"; the contract has "F-DEMO-SORT-001"')],
    ),
    "issue": (
        lambda _: {"issue": "X-1"},
        [(RECORD, "/issue", 'the record has "X-1"; the contract has "DEMO-1"')],
    ),
    "a long title": (
        lambda _: {"title": "x" * 119},
        [(RECORD, "/title", f'the record has "{"x" * 116}…; the contract has "Sorting keeps every item"')],
    ),
    "a title that just fits": (
        lambda _: {"title": "x" * 118},
        [(RECORD, "/title", f'the record has "{"x" * 118}"; the contract has "Sorting keeps every item"')],
    ),
    "digest": (
        lambda _: {"contract_digest": "0"},
        [(RECORD, "/contract_digest", 'the record has "0"; the contract\'s sha256 is "DIGEST"')],
    ),
    "resolved": (
        lambda record: {"resolved": {**record.resolved, "steps": 3.0}},
        [
            (
                RECORD,
                "/resolved",
                'the record has {"device": "cpu", "steps": 3.0}; the observation has {"device": "cpu", "steps": 3}',
            ),
        ],
    ),
    "requested": (
        lambda _: {"requested": {"steps": 4, "device": "cpu"}},
        [
            (
                RECORD,
                "/requested",
                'the record has {"device": "cpu", "steps": 4}; contract and parameters ask for '
                '{"device": "cpu", "steps": 3}',
            ),
        ],
    ),
    "unjudged": (
        lambda _: {"unjudged": ("ordered",)},
        [(RECORD, "/unjudged", 'the record has ["ordered"]; not judged are now []')],
    ),
    "verdict and proven": (
        lambda _: {"verdict": Verdict.VOID, "proven": False},
        [
            (RECORD, "/verdict", "was VOID and is PASS now"),
            (RECORD, "/proven", "was false and is true now"),
        ],
    ),
    "a clause's outcome": (
        _clause(0, outcome=Outcome.FAIL),
        [(RECORD, "/clauses/0/outcome", "subject.completes was FAIL and is PASS now")],
    ),
    "a clause's bound": (
        _clause(2, bound="requested 4"),
        [(RECORD, "/clauses/2/bound", 'the record has "requested 4"; for resolved.steps there is now "requested 3"')],
    ),
    "a clause's unit": (
        _clause(2, unit="B"),
        [(RECORD, "/clauses/2/unit", 'the record has "B"; for resolved.steps there is now ""')],
    ),
    "a clause of another name": (
        _clause(2, id="resolved.dtype"),
        [
            (RECORD, "/clauses", "the record leaves out the clause resolved.steps, which is PASS now"),
            (RECORD, "/clauses/2", "the record has resolved.dtype as PASS; there is no such clause"),
        ],
    ),
    "a clause twice": (
        lambda record: {"clauses": (*record.clauses, replace(record.clauses[1]))},
        [(RECORD, "/clauses/1", "the clause resolved.device is listed twice")],
    ),
    "a mutant's subject": (
        _mutant(1, subject="a:B"),
        [(RECORD, "/mutants/1/subject", 'the record has "a:B"; the contract has "falsifiers.demo.sorting:Sorter"')],
    ),
    "a mutant's fate": (
        _mutant(0, fate=Fate.SURVIVED),
        [(RECORD, "/mutants/0/fate", "forgets-one was survived and is killed now")],
    ),
    "what a mutant failed": (
        _mutant(1, failed=()),
        [
            (
                RECORD,
                "/mutants/1/failed",
                'the record has []; stops-early fails now on ["given.const"]',
            ),
        ],
    ),
    "a mutant that is not the contract's": (
        lambda record: {"mutants": (*record.mutants, replace(record.mutants[2], id="ghost"))},
        [(RECORD, "/mutants/3", "the contract has no mutant ghost")],
    ),
    "a mutant twice": (
        lambda record: {"mutants": (*record.mutants, record.mutants[2])},
        [(RECORD, "/mutants", "a mutant is listed twice")],
    ),
    "mutants in another order": (
        lambda record: {"mutants": record.mutants[::-1]},
        [(RECORD, "/mutants", "the mutants are in another order than the contract's")],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_record_that_says_otherwise(sound: Judged, change: str) -> None:
    """What it has, and what contract and observations say now."""
    record, contract, *rest = sound
    make, expected = CHANGES[change]
    found = told(rejudge(replace(record, **make(record)), contract, *rest))
    assert found == [(file, place, said.replace("DIGEST", contract.digest)) for file, place, said in expected]


def test_a_record_of_another_seed_profile_and_device(sound: Judged) -> None:
    """Those of the observation and of each mutant's are compared, whichever of them were changed as well."""
    record, contract, observation, seen = sound
    others = {name: replace(one, seed=7) for name, one in seen.items()}
    assert told(rejudge(replace(record, seed=7), contract, observation, others)) == [
        (RECORD, "/seed", "the record has 7; the observation has 0"),
    ]
    assert told(rejudge(record, contract, observation, {**seen, "forgets-one": others["forgets-one"]})) == [
        (FORGETS, "/seed", "forgets-one did not run like the subject: 7, not 0"),
    ]
    assert told(rejudge(record, contract, replace(observation, profile="full"), seen)) == [
        (RECORD, "/profile", 'the record has "reduced"; the observation has "full"'),
    ]
    elsewhere = replace(observation, device=replace(observation.device, name="another"))
    assert told(rejudge(record, contract, elsewhere, seen)) == [
        (
            *(RECORD, "/device"),
            'the record has {"name": "a CPU", "type": "cpu"}; the observation has {"name": "another", "type": "cpu"}',
        ),
    ]
    alone = replace(contract, profiles={"reduced": contract.profiles["reduced"]})
    full = {name: replace(one, profile="full") for name, one in seen.items()}
    found = told(rejudge(replace(record, profile="full"), alone, replace(observation, profile="full"), full))
    assert (RECORD, "/profile", "the contract has no full profile") in found
    assert {place for _, place, _ in found} == {"/profile", "/parameters"}


_NOT_THOSE = "are not those of the reduced profile with the record's overrides"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, ": steps is missing"),
        ({"steps": 3, "size": 1}, ": size is not among them"),
        ({"steps": 4, **dict.fromkeys(("size", "model", "beam", "heads"), 1)}, ": beam is not among them"),
        ({"steps": 3.0}, ": steps is 3.0, not 3"),
    ],
)
def test_other_parameters_than_profile_and_overrides_give(sound: Judged, parameters: dict[str, Any], said: str) -> None:
    """Of the subject and of a mutant: which, and how they differ."""
    record, contract, observation, seen = sound
    found = told(rejudge(record, contract, replace(observation, parameters=parameters), seen))
    assert (OBSERVATION, "/parameters", _NOT_THOSE + said) in found
    others = {**seen, "forgets-one": replace(seen["forgets-one"], parameters=parameters)}
    found = told(rejudge(record, contract, observation, others))
    assert (FORGETS, "/parameters", f"forgets-one did not run like the subject{said}") in found


def test_parameters_are_the_profiles_the_overrides_and_the_subjects_own(tmp_path: Path) -> None:
    """Each over the one before; a mutant has its own instead of the subject's, and is asked for the same overrides."""
    record, contract, observation, seen = parts(tmp_path, overrides={"steps": 5})
    assert told(rejudge(record, contract, observation, seen)) == []
    own = replace(record, subject_parameters={"trainer": "t.toml"})
    theirs = replace(observation, parameters={**observation.parameters, "trainer": "t.toml"})
    assert told(rejudge(own, contract, theirs, seen)) == []
    assert told(rejudge(own, contract, observation, seen)) == [
        (OBSERVATION, "/parameters", f"{_NOT_THOSE}: trainer is missing"),
    ]


@pytest.mark.parametrize("fate", list(Fate))
def test_a_mutant_without_its_observation(sound: Judged, fate: Fate) -> None:
    """What ran and said something left one; what did not is taken at the record's word, and proves nothing."""
    record, contract, observation, seen = sound
    one = replace(record.mutants[0], fate=fate, reason="so it was", failed=())
    rest = {name: there for name, there in seen.items() if name != "forgets-one"}
    again = rejudge(replace(record, mutants=(one, *record.mutants[1:])), contract, observation, rest)
    missing = [(found.file, found.message) for found in again.findings if found.code is Code.INCOMPLETE]
    if fate is Fate.INCONCLUSIVE or not fate.has_run:
        assert missing == []
        assert again.mutants["forgets-one"] is fate
    else:
        assert missing == [(FORGETS, f"is missing, though the record says the mutant was {fate}")]
        assert again.mutants["forgets-one"] is Fate.INCONCLUSIVE
        assert again.claim.reason == "mutant forgets-one is inconclusive: its observation is missing"
    hidden = (
        RECORD,
        "/mutants/0/fate",
        "forgets-one was not run (so it was), but this device has all that it requires",
    )
    there = [(found.file, found.pointer, found.message) for found in again.findings]
    assert (hidden in there) is (fate is Fate.NOT_RUN)


def test_a_mutant_that_the_record_leaves_out(sound: Judged) -> None:
    """It is judged from its observation where there is one; else nobody knows what became of it."""
    record, contract, observation, seen = sound
    for position, (one, place) in enumerate((("forgets-one", 1), ("stops-early", 1), ("silent-fallback", 2))):
        left = tuple(mutant for mutant in record.mutants if mutant.id != one)
        again = rejudge(replace(record, mutants=left), contract, observation, seen)
        found = told(again)
        assert found[0] == (RECORD, "/mutants", f"the record leaves out the mutant {one}")
        if one == "silent-fallback":
            assert again.mutants[one] is Fate.INCONCLUSIVE
            assert again.claim.reason == "mutant silent-fallback is inconclusive: the record does not list it"
        else:
            assert found[1][1:] == (
                f"/mutants/{position}/fate",
                f"{one} was inconclusive and is killed now",
            )
            assert len(found) == place + 2


def test_a_reason_is_told_where_there_is_one(sound: Judged) -> None:
    """Of a clause, a mutant and a verdict that came out worse than the record has it."""
    record, contract, observation, seen = sound
    worse = replace(observation, measurements={**observation.measurements, "returned": 2})
    healed = {**seen, "forgets-one": replace(seen["forgets-one"], measurements=observation.measurements)}
    assert [clause.id for clause in record.clauses][5::7] == ["returned.type", "nothing-lost"]
    lost = 'the record has {"given": 3, "returned": 3}; for nothing-lost there is now {"given": 3, "returned": 2}'
    assert told(rejudge(record, contract, worse, healed)) == [
        (RECORD, "/clauses/5/value", "the record has 3; for returned.type there is now 2"),
        (RECORD, "/clauses/6/value", "the record has 3; for returned.minimum there is now 2"),
        (RECORD, "/clauses/12/outcome", "nothing-lost was PASS and is FAIL now: items were lost or made up"),
        (RECORD, "/clauses/12/value", lost),
        (RECORD, "/mutants/0/fate", "forgets-one was killed and is survived now (it passed every clause)"),
        (RECORD, "/mutants/0/failed", 'the record has ["nothing-lost"]; forgets-one fails now on []'),
        (RECORD, "/verdict", "was PASS and is FAIL now (nothing-lost: items were lost or made up)"),
        (RECORD, "/proven", "was true and is false now"),
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
        ({"compute_capability": "9.0"}, {"compute_capability": "9.²"}, True),  # no digit that int() reads
    ],
)
def test_what_the_device_could_have_run_is_not_excused(
    sound: Judged, requires: dict[str, Any], device: dict[str, Any], could: bool
) -> None:
    """As far as the device's fields tell; a mutant on what the profile does not judge is not asked for."""
    record, contract, observation, seen = sound
    mutants = (*contract.mutants[:2], replace(contract.mutants[2], requires=requires, violates=("ordered",)))
    there = Device(**{"type": "cpu", "name": "a CPU", **device})
    asked = replace(contract, mutants=mutants)
    said = "silent-fallback was not run (needs a CUDA GPU), but this device has all that it requires"
    proven = replace(observation, device=there, resolved={**observation.resolved, "device": there.type})
    found = told(rejudge(record, asked, proven, seen))
    assert ((RECORD, "/mutants/2/fate", said) in found) is could
    omitting = replace(contract.profiles["reduced"], omits=frozenset({"smallest"}))
    asked = replace(asked, profiles={**contract.profiles, "reduced": omitting})
    assert (RECORD, "/mutants/2/fate", said) not in told(rejudge(record, asked, _without(proven, "smallest"), seen))


def _without(observation: Observation, name: str) -> Observation:
    measurements = {key: value for key, value in observation.measurements.items() if key != name}
    return replace(observation, measurements=measurements)
