"""The built-in clauses and the reasons, value by value: `harness verify` compares them with those of a bundle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.device import Device
from harness.base.vocabulary import Outcome, Phase
from harness.contract import Contract
from harness.contract.bound import Bound
from harness.contract.clauses import ClauseResult
from harness.contract.model import CONTRADICTION, UNLIKE_FILES
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.judge import Judgment, judge, requested
from harness.judging.observation import Ending, EndingKind, Residency
from tests.contracts import contract_of, document, healthy, observe

PASS, FAIL, NOT_MEASURED = Outcome.PASS, Outcome.FAIL, Outcome.NOT_MEASURED
_RAN_ON = {"device": "cpu", "dtype": "bfloat16", "backend": "inductor", "steps": 3}
"""The requested values of the contract below, which a healthy trial reads back."""


def asking(**requires: str) -> Contract:
    """The contract of tests.contracts with a dtype and a backend. Its full profile has these requirements."""
    content = document(target={"type": "cuda"})
    for profile in content["profiles"].values():
        profile["parameters"] = {name: value for name, value in _RAN_ON.items() if name != "device"}
    content["profiles"]["full"]["requires"].update(requires)
    return contract_of(content)


CONTRACT = asking()
PARAMETERS = CONTRACT.profiles["reduced"].parameters


def held(measured: dict[str, Any], **circumstances: Any) -> Judgment:
    """The judgment of these measurements, by default with the parameters and resolved values of the contract."""
    return judge(CONTRACT, observe(measured, **{"parameters": PARAMETERS, "resolved": _RAN_ON, **circumstances}))


def clause(judgment: Judgment, name: str) -> ClauseResult:
    """The only clause of this name."""
    (found,) = (clause for clause in judgment.clauses if clause.id == name)
    return found


def test_every_name_that_is_asked_for_is_compared() -> None:
    """Device, dtype, backend and steps are each a clause with the two compared values."""
    bounds = {f"resolved.{name}": Bound("const", value) for name, value in _RAN_ON.items()}
    assert CONTRACT.builtin_clauses == (
        "subject.completes",
        *bounds,
        "residency.allocator",
        "residency.driver",
    )
    judgment = held(healthy())
    assert judgment.outcome is PASS
    expected = [
        ClauseResult("subject.completes", PASS, "completed", Bound("const", "completed")),
        *(ClauseResult(f"resolved.{name}", PASS, value, bounds[f"resolved.{name}"]) for name, value in _RAN_ON.items()),
    ]
    assert expected == list(judgment.clauses[: len(expected)])


@pytest.mark.parametrize("name", list(_RAN_ON))
def test_a_difference_of_any_of_them_fails(name: str) -> None:
    """A wrong dtype, backend, device or number of steps is FAIL. An unknown one is NOT_MEASURED."""
    other = held(healthy(), resolved={**_RAN_ON, name: "another"})
    reason = Reason(ReasonCode.ANOTHER_RAN, name, bound=Bound("const", _RAN_ON[name]), value="another")
    assert other.with_outcome(FAIL) == (
        ClauseResult(f"resolved.{name}", FAIL, "another", Bound("const", _RAN_ON[name]), "", reason),
    )
    left_out = held(healthy(), resolved={key: value for key, value in _RAN_ON.items() if key != name})
    reason = Reason(ReasonCode.NOT_READ_BACK, name)
    assert left_out.with_outcome(NOT_MEASURED) == (
        ClauseResult(f"resolved.{name}", NOT_MEASURED, None, Bound("const", _RAN_ON[name]), "", reason),
    )
    assert [clause.id for clause in left_out.clauses] == [clause.id for clause in other.clauses]


@pytest.mark.parametrize(("wanted", "got"), [(1, True), (0, False), (True, 1)])
def test_a_truth_value_is_no_number_of_steps(wanted: Any, got: Any) -> None:
    """True equals 1 in Python, but the requested and the resolved value must have one type."""
    judgment = held(healthy(), parameters={**PARAMETERS, "steps": wanted}, resolved={**_RAN_ON, "steps": got})
    assert [clause.id for clause in judgment.with_outcome(FAIL)] == ["resolved.steps"]


def test_what_no_profile_names_is_no_clause() -> None:
    """A contract whose only parameter is `steps` has no clause on a dtype."""
    names = contract_of(document()).builtin_clauses
    assert names == (
        "subject.completes",
        "resolved.device",
        "resolved.steps",
        "residency.allocator",
        "residency.driver",
    )


@pytest.mark.parametrize(
    ("profile", "named", "device", "expected"),
    [
        ("reduced", None, "cpu", "cpu"),
        ("reduced", None, "cuda", "cuda"),
        ("reduced", "cuda", "cpu", "cuda"),
        ("reduced", "cpu", "cuda", "cpu"),
        ("full", None, "cpu", "cuda"),
        ("full", "cpu", "cpu", "cuda"),
        ("none such", None, "cpu", "cpu"),
    ],
)
def test_which_device_is_asked_for(profile: str, named: str | None, device: str, expected: str) -> None:
    """It is CUDA if the profile requires that, else the parameter `device`, else the device of the trial."""
    given: dict[str, object] = {"steps": 3} if named is None else {"steps": 3, "device": named}
    assert requested(asking(device="cuda"), profile, given, device) == {"device": expected, "steps": 3}


def test_a_profile_that_the_contract_lacks_is_judged_all_the_same() -> None:
    """A profile that the contract lacks raises nothing."""
    assert held(healthy(), profile="none such").outcome is PASS


@pytest.mark.parametrize(
    ("residency", "allocator", "driver"),
    [
        (Residency(1, True), (PASS, 1, "B", None), (PASS, True, None)),
        (
            Residency(0, False),
            (FAIL, 0, "B", Reason(ReasonCode.NOT_ON_THE_GPU, "allocator")),
            (FAIL, False, Reason(ReasonCode.NOT_ON_THE_GPU, "driver")),
        ),
        (
            Residency(),
            (NOT_MEASURED, None, "B", Reason(ReasonCode.NOT_ASKED, "allocator")),
            (NOT_MEASURED, None, Reason(ReasonCode.NOT_ASKED, "driver")),
        ),
        (
            Residency(-1, driver_seen=True),
            (FAIL, -1, "B", Reason(ReasonCode.NOT_ON_THE_GPU, "allocator")),
            (PASS, True, None),
        ),
        (
            Residency(reason="no NVML"),
            (NOT_MEASURED, None, "B", Reason(ReasonCode.NOT_ASKED, "allocator", "no NVML")),
            (NOT_MEASURED, None, Reason(ReasonCode.NOT_ASKED, "driver", "no NVML")),
        ),
    ],
)
def test_residency(residency: Residency, allocator: tuple[Any, ...], driver: tuple[Any, ...]) -> None:
    """With CUDA, the allocator and the driver each have a clause, with what they report or why they report nothing."""
    cuda = {"device": Device("cuda", "a GPU"), "resolved": {**_RAN_ON, "device": "cuda"}, "residency": residency}
    judgment = held(healthy(), **cuda)
    outcome, peak, unit, reason = allocator
    assert clause(judgment, "residency.allocator") == ClauseResult(
        "residency.allocator", outcome, peak, Bound("exclusiveMinimum", 0), unit, reason
    )
    outcome, seen, reason = driver
    assert clause(judgment, "residency.driver") == ClauseResult(
        "residency.driver", outcome, seen, Bound("const", True), "", reason
    )


@pytest.mark.parametrize(("own", "reported", "outcome"), [(None, 3, PASS), (0, 3, PASS), (0, 0, FAIL), (5, 0, PASS)])
def test_residency_of_another_process(own: int | None, reported: int, outcome: Outcome) -> None:
    """What the falsifier measured of another process counts where the trial's own process allocated nothing."""
    resolved = {**_RAN_ON, "device": "cuda", "allocated_bytes": reported}
    cuda = {"device": Device("cuda", "a GPU"), "resolved": resolved, "residency": Residency(own, True)}
    assert clause(held(healthy(), **cuda), "residency.allocator").outcome is outcome


def test_on_the_cpu_there_is_no_residency() -> None:
    """Without a GPU, no clause is about residency."""
    assert not [clause for clause in held(healthy()).clauses if clause.id.startswith("residency.")]


def test_undeclared_measurements_are_named_in_order() -> None:
    """They are sorted, and make the claim NOT_MEASURED."""
    found = clause(held({**healthy(), "zeal": 1, "ardour": 2}), "observation.closed")
    reason = Reason(ReasonCode.UNDECLARED, "ardour")
    assert found == ClauseResult(
        "observation.closed", NOT_MEASURED, ["ardour", "zeal"], Bound("closed", sorted(healthy())), "", reason
    )


def test_a_judgment_of_nothing_is_not_measured() -> None:
    """A judgment without clauses is NOT_MEASURED, without a reason."""
    assert (Judgment(()).outcome, Judgment(()).reason) == (NOT_MEASURED, None)


def test_the_reason_is_of_the_clause_that_decided() -> None:
    """An earlier clause with a better outcome is not the reason."""
    missing, broken = Reason(ReasonCode.MISSING, "b"), Reason(ReasonCode.VIOLATED, "c")
    rows = [("a", PASS, None), ("b", NOT_MEASURED, missing), ("c", FAIL, broken), ("d", FAIL, missing)]
    clauses = tuple(ClauseResult(name, outcome, reason=why) for name, outcome, why in rows)
    assert Judgment(clauses).reason == Reason(ReasonCode.CLAUSE, clauses=("c",), cause=broken)
    assert Judgment(clauses[:2]).reason == Reason(ReasonCode.CLAUSE, clauses=("b",), cause=missing)
    assert Judgment(clauses[:1]).reason is None


@given(st.sampled_from(sorted(healthy())), st.text(min_size=1))
def test_clauses_name_why_a_measurement_is_missing(name: str, why: str) -> None:
    """Only the clauses and rules that lack the measurement name the reason, and only if they are NOT_MEASURED."""
    rule = {"id": "as-many", "rule": "self.returned == parameters.steps", "message": "items were lost"}
    contract = contract_of(document(rules=[*document()["rules"], rule]))
    looking = {clause.id for clause in contract.clauses if clause.path[0] == name}
    looking |= {rule.id for rule in contract.rules if f"self.{name}" in rule.text}
    measured = healthy(**{name: ...})
    judgment = judge(contract, observe(measured, unseen={name: why, "steps": "a parameter is always shown"})).clauses
    plain = judge(contract, observe(measured)).clauses
    for result, before in zip(judgment, plain, strict=True):
        reason = replace(before.reason, text=why) if result.id in looking else before.reason
        assert (result.outcome, result.reason) == (before.outcome, reason)
    assert judge(contract, observe(measured, unseen={"nothing": why})).clauses == plain
    asked_for_less = judge(contract, observe(healthy(), parameters={}, unseen={"steps": why}))
    assert clause(asked_for_less, "as-many").reason == Reason(ReasonCode.MISSING, "parameters.steps")


def test_what_failed_keeps_its_own_reason() -> None:
    """A wrong value keeps its own reason, also if another value of the same name is missing."""
    observation = {
        "type": "object",
        "properties": {
            **document()["observation"]["properties"],
            "last": {"type": "object", "properties": {"loss": {"type": "number", "minimum": 0}}},
            "loss": {"type": "number", "minimum": 0},
        },
    }
    contract = contract_of(document(observation=observation))
    unseen = {"loss": "the log was cut"}
    found = judge(contract, observe(healthy(last={}), unseen=unseen))
    assert clause(found, "loss.minimum").reason == Reason(ReasonCode.MISSING, "loss", "the log was cut")
    assert clause(found, "last.loss.minimum").reason == Reason(ReasonCode.MISSING, "last.loss")
    found = judge(contract, observe(healthy(last={"loss": -1.0}), unseen={"last": "the log was cut"}))
    assert clause(found, "last.loss.minimum").reason == Reason(
        ReasonCode.VIOLATED, "last.loss", bound=Bound("minimum", 0)
    )
    found = judge(CONTRACT, observe(healthy(smallest=float("nan"), largest=...), unseen={"largest": "the log was cut"}))
    assert (clause(found, "ordered").outcome, clause(found, "ordered").reason) == (
        FAIL,
        Reason(ReasonCode.NOT_FINITE, "self.smallest"),
    )


def test_a_device_that_was_told_but_not_read_back() -> None:
    """Only the clause on the device has what the trial said about its device."""
    found = held(healthy(), resolved={"told_device": "cuda:0, it says"})
    reasons = {name: clause(found, f"resolved.{name}").reason for name in _RAN_ON}
    texts = {"device": "cuda:0, it says"}
    assert reasons == {name: Reason(ReasonCode.NOT_READ_BACK, name, text=texts.get(name, "")) for name in _RAN_ON}


def test_a_null_that_was_read_back() -> None:
    """A dtype of None was read back, and is another one than that requested."""
    assert clause(held(healthy(), resolved={**_RAN_ON, "dtype": None}), "resolved.dtype").outcome is FAIL


@pytest.mark.parametrize(
    ("key", "name", "place"), [("contradiction", CONTRADICTION, ""), ("unlike_files", UNLIKE_FILES, "files")]
)
def test_what_a_trainer_reported_must_agree(key: str, name: str, place: str) -> None:
    """A disagreement is FAIL with its text, an empty one PASS without a reason."""
    found = clause(held(healthy(), resolved={**_RAN_ON, key: "30 and 50"}), name)
    reason = Reason(ReasonCode.CONTRADICTION, place, "30 and 50")
    assert found == ClauseResult(name, FAIL, "30 and 50", Bound("const", ""), "", reason)
    assert clause(held(healthy(), resolved={**_RAN_ON, key: ""}), name) == ClauseResult(
        name, PASS, "", Bound("const", "")
    )


def test_residency_follows_the_request() -> None:
    """A trial that was asked for CUDA has the clauses on residency, whatever device it got."""
    asked = held(healthy(), parameters={**PARAMETERS, "device": "cuda"})
    assert [clause.id for clause in asked.clauses if clause.id.startswith("residency.")] == [
        "residency.allocator",
        "residency.driver",
    ]


@pytest.mark.parametrize(("kind", "is_excused"), [(EndingKind.KILLED, True), (EndingKind.DIED, False)])
def test_why_residency_is_excused(kind: EndingKind, is_excused: bool) -> None:
    """The reason is the ending, if the subject is not to blame for it."""
    cuda = {"device": Device("cuda", "a GPU"), "resolved": {**_RAN_ON, "device": "cuda"}}
    judgment = held(healthy(), residency=Residency(0, False), ending=Ending(kind, Phase.SUBJECT, "gone"), **cuda)
    for witness in ("allocator", "driver"):
        found = clause(judgment, f"residency.{witness}")
        own = Reason(ReasonCode.NOT_ON_THE_GPU, witness)
        expected = (NOT_MEASURED, judgment.clauses[0].reason) if is_excused else (FAIL, own)
        assert (found.outcome, found.reason) == expected


def test_what_a_profile_omits_is_listed_and_not_judged() -> None:
    """A judgment names the clauses and rules on a measurement that the profile omits, and has no outcome for them."""
    profiles = document()["profiles"]
    profiles["reduced"]["omits"] = ["largest"]
    contract = contract_of(document(profiles=profiles))
    judgment = judge(contract, observe(healthy(largest=...)))
    assert set(judgment.unjudged) == {"largest.type", "ordered"}
    assert {clause.id for clause in judgment.clauses}.isdisjoint(judgment.unjudged)
    assert judgment.outcome is PASS


def is_whole(judgment: Judgment) -> bool:
    """Whether no clause exceeded the allowance."""
    return all(clause.reason is None or clause.reason.code is not ReasonCode.TOO_COSTLY for clause in judgment.clauses)


def test_trials_share_one_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pays for a trial without mutants does not pay for it among a million mutants."""
    mutant = CONTRACT.mutants[0]
    assert is_whole(held(healthy()))
    crowded = replace(CONTRACT, mutants=(mutant,) * 1_000_000)
    monkeypatch.setattr("harness.contract.cost.LIMIT", 1_000_000)
    assert not is_whole(judge(crowded, observe(healthy())))
