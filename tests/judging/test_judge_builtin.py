"""The built-in clauses to the letter, for `harness verify` compares them with a bundle's, and reasons in full."""

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
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.judge import Judgment, judge, requested
from harness.judging.observation import Ending, EndingKind, Residency
from tests.contracts import contract_of, document, healthy, observe

PASS, FAIL, NOT_MEASURED = Outcome.PASS, Outcome.FAIL, Outcome.NOT_MEASURED
_RAN_ON = {"device": "cpu", "dtype": "bfloat16", "backend": "inductor", "steps": 3}
"""What the contract below asks for, and what a healthy trial of it reads back."""


def asking(**requires: str) -> Contract:
    """The contract of tests.contracts, its profiles naming a dtype and a backend; the full one requires this too."""
    content = document(target={"type": "cuda"})
    for profile in content["profiles"].values():
        profile["parameters"] = {name: value for name, value in _RAN_ON.items() if name != "device"}
    content["profiles"]["full"]["requires"].update(requires)
    return contract_of(content)


CONTRACT = asking()
PARAMETERS = CONTRACT.profiles["reduced"].parameters


def held(measured: dict[str, Any], **circumstances: Any) -> Judgment:
    """These measurements, asked for and run as the contract says where it is not said otherwise."""
    return judge(CONTRACT, observe(measured, **{"parameters": PARAMETERS, "resolved": _RAN_ON, **circumstances}))


def clause(judgment: Judgment, name: str) -> ClauseResult:
    """The one clause of this name."""
    (found,) = (one for one in judgment.clauses if one.id == name)
    return found


def test_every_name_that_is_asked_for_is_compared() -> None:
    """Device, dtype, backend and steps: each is a clause, and each says what it compared."""
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
    """Another dtype or backend is another claim, as another device is."""
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
    assert [one.id for one in left_out.clauses] == [one.id for one in other.clauses]


@pytest.mark.parametrize(("wanted", "got"), [(1, True), (0, False), (True, 1)])
def test_a_truth_value_is_no_number_of_steps(wanted: Any, got: Any) -> None:
    """Python takes one for the other; what was asked for and what ran are of one type, or they differ."""
    judgment = held(healthy(), parameters={**PARAMETERS, "steps": wanted}, resolved={**_RAN_ON, "steps": got})
    assert [one.id for one in judgment.with_outcome(FAIL)] == ["resolved.steps"]


def test_what_no_profile_names_is_no_clause() -> None:
    """A contract whose parameters name steps alone is not held to a dtype."""
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
    """The one at hand; the one that a parameter names, as for a run that has ended; CUDA if the profile requires it."""
    given: dict[str, object] = {"steps": 3} if named is None else {"steps": 3, "device": named}
    assert requested(asking(device="cuda"), profile, given, device) == {"device": expected, "steps": 3}


def test_a_profile_that_the_contract_lacks_is_judged_all_the_same() -> None:
    """What cannot be looked up raises nothing."""
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
            Residency(reason="no NVML"),
            (NOT_MEASURED, None, "B", Reason(ReasonCode.NOT_ASKED, "allocator", "no NVML")),
            (NOT_MEASURED, None, Reason(ReasonCode.NOT_ASKED, "driver", "no NVML")),
        ),
    ],
)
def test_residency(residency: Residency, allocator: tuple[Any, ...], driver: tuple[Any, ...]) -> None:
    """Both witnesses are asked wherever CUDA is, and each says what it saw, or why it saw nothing."""
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


def test_on_the_cpu_nobody_asks_for_residency() -> None:
    """There is no GPU on which the process could have been."""
    assert not [one for one in held(healthy()).clauses if one.id.startswith("residency.")]


def test_undeclared_measurements_are_named_in_order() -> None:
    """They leave the claim not measured, whichever was measured first."""
    found = clause(held({**healthy(), "zeal": 1, "ardour": 2}), "observation.closed")
    reason = Reason(ReasonCode.UNDECLARED, "ardour")
    assert found == ClauseResult(
        "observation.closed", NOT_MEASURED, ["ardour", "zeal"], Bound("closed", sorted(healthy())), "", reason
    )


def test_a_judgment_of_nothing_is_not_measured() -> None:
    """No clause failed because none was judged; there is no reason to give either."""
    assert (Judgment(()).outcome, Judgment(()).reason) == (NOT_MEASURED, None)


def test_the_reason_is_of_the_clause_that_decided() -> None:
    """Not of one before it that came out better."""
    missing, broken = Reason(ReasonCode.MISSING, "b"), Reason(ReasonCode.VIOLATED, "c")
    rows = [("a", PASS, None), ("b", NOT_MEASURED, missing), ("c", FAIL, broken), ("d", FAIL, missing)]
    clauses = tuple(ClauseResult(name, outcome, reason=why) for name, outcome, why in rows)
    assert Judgment(clauses).reason == Reason(ReasonCode.CLAUSE, clauses=("c",), cause=broken)
    assert Judgment(clauses[:2]).reason == Reason(ReasonCode.CLAUSE, clauses=("b",), cause=missing)
    assert Judgment(clauses[:1]).reason is None


@given(st.sampled_from(sorted(healthy())), st.text(min_size=1))
def test_what_was_not_shown_is_told_where_it_is_looked_at(name: str, why: str) -> None:
    """By every clause and rule that lacks it, by no other, and by nothing that has an outcome of its own."""
    rule = {"id": "as-many", "rule": "self.returned == parameters.steps", "message": "items were lost"}
    contract = contract_of(document(rules=[*document()["rules"], rule]))
    looking = {one.id for one in contract.clauses if one.path[0] == name}
    looking |= {one.id for one in contract.rules if f"self.{name}" in one.text}
    measured = healthy(**{name: ...})
    told = judge(contract, observe(measured, unseen={name: why, "steps": "a parameter is always shown"})).clauses
    plain = judge(contract, observe(measured)).clauses
    for one, before in zip(told, plain, strict=True):
        assert one.reason == (replace(before.reason, text=why) if one.id in looking else before.reason)
    assert judge(contract, observe(measured, unseen={"nothing": why})).clauses == plain
    asked_for_less = judge(contract, observe(healthy(), parameters={}, unseen={"steps": why}))
    assert clause(asked_for_less, "as-many").reason == Reason(ReasonCode.MISSING, "parameters.steps")


def test_what_failed_keeps_its_own_reason() -> None:
    """A value that was shown and is wrong is no less wrong for what was said of its neighbour's absence."""
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


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Ending(EndingKind.INTERRUPTED, Phase.SUBJECT), Reason(ReasonCode.INTERRUPTED)),
        (Ending(EndingKind.INTERRUPTED, Phase.SUBJECT, "SIGTERM"), Reason(ReasonCode.INTERRUPTED, text="SIGTERM")),
        (Ending(EndingKind.TIMED_OUT, Phase.START, "60 s"), Reason(ReasonCode.TIMED_OUT, "start", "60 s")),
        (Ending(EndingKind.DIED, Phase.SUBJECT, "signal 11"), Reason(ReasonCode.DIED, "subject", "signal 11")),
    ],
)
def test_how_a_trial_ended_is_told(ending: Ending, reason: Reason) -> None:
    """The clause has the kind of ending as its value, and the rest as its reason."""
    outcome = FAIL if ending.kind is EndingKind.DIED else NOT_MEASURED
    expected = ClauseResult("subject.completes", outcome, str(ending.kind), Bound("const", "completed"), "", reason)
    assert clause(held(healthy(), ending=ending), "subject.completes") == expected


def test_what_an_interruption_made_provisional_says_so() -> None:
    """A violation that may have been replaced later is told, and counts for nothing."""
    interrupted = Ending(EndingKind.INTERRUPTED)
    found = clause(held(healthy(returned=2), ending=interrupted), "nothing-lost")
    assert (found.outcome, found.reason) == (
        NOT_MEASURED,
        Reason(ReasonCode.PROVISIONAL, cause=Reason(ReasonCode.VIOLATED, text="items were lost or made up")),
    )
