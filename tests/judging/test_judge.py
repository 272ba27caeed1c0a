"""Judging is total and deterministic, and no broken or missing value passes."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base import strictjson
from harness.base.device import Device
from harness.base.schemas import DocumentError
from harness.base.vocabulary import Outcome, Phase
from harness.contract import Contract
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.judge import Judgment, judge, refutes
from harness.judging.observation import Ending, EndingKind, Observation, Residency
from tests.contracts import contract_of, document, healthy, observe
from tests.strategies import broken_numbers, json_values, measurements

CONTRACT = contract_of(document())
NAMES = st.sampled_from(sorted(healthy()))


def outcome(measured: Any, **circumstances: Any) -> Outcome:
    """The outcome of these measurements."""
    return judge(CONTRACT, observe(measured, **circumstances)).outcome


def plain(judgment: Judgment) -> Any:
    """A judgment as a file holds it."""
    rows = [
        [
            clause.id,
            str(clause.outcome),
            strictjson.tag_nonfinite(clause.value),
            clause.bound,
            clause.unit,
            clause.reason,
        ]
        for clause in judgment.clauses
    ]
    return [str(judgment.outcome), judgment.reason, rows]


@pytest.mark.parametrize(
    ("measured", "lasts"),
    [
        ({"single": 2}, {"single.maximum"}),
        ({"single": math.nan}, {"single.maximum", "single.type"}),
        ({"many": [2]}, {"many[].maximum"}),
        ({"many": [1, 1]}, {"many.uniqueItems"}),
        ({"many": [1, 0, 1, 0]}, {"many.maxItems", "many.uniqueItems"}),
        ({"single": 1, "other": 0}, {"singles"}),
        ({"single": 1}, set()),
        ({"other": 0}, set()),
        ({"single": 1, "other": 1, "many": [1]}, set()),
    ],
)
def test_which_violations_last(measured: dict[str, Any], lasts: set[str]) -> None:
    """Those of a final measurement, and of a list whatever it grows to. A list that is too short can grow."""
    number = {"type": "number", "maximum": 1, "x-source": "given"}
    many = {"type": "array", "minItems": 3, "maxItems": 3, "uniqueItems": True, "x-source": "given", "items": number}
    changed = document(observation={"type": "object", "properties": {"single": number, "other": number, "many": many}})
    changed["rules"] = [
        {"id": "singles", "rule": "self.single == self.other", "message": "differ"},
        {"id": "all-small", "rule": "self.many.exists(one, one < 1.0)", "message": "none"},
    ]
    changed["mutants"][0]["violates"] = ["singles"]
    contract = contract_of(changed)
    names = {clause.id for clause in (*contract.clauses, *contract.rules)}
    assert {name for name in names if refutes(contract, observe(measured), [name])} == lasts
    assert not refutes(contract, observe(measured), {*lasts, "many.minItems"})
    assert refutes(contract, observe(measured), ()) is bool(lasts)


def test_healthy_measurements_pass() -> None:
    """The measurements that the other tests break pass unbroken, and every clause is listed."""
    judgment = judge(CONTRACT, observe(healthy()))
    assert judgment.outcome is Outcome.PASS
    builtin = ["subject.completes", "resolved.device", "resolved.steps"]
    own = [*(clause.id for clause in CONTRACT.clauses), *(rule.id for rule in CONTRACT.rules)]
    assert [*builtin, *own] == [clause.id for clause in judgment.clauses]


@given(NAMES, broken_numbers, st.sampled_from(["alone", "in a list", "in a map"]))
def test_what_is_not_finite_never_passes(name: str, number: Any, place: str) -> None:
    """NaN, an infinity and an integer too large for a double fail at any place."""
    value = {"alone": number, "in a list": [1.0, number, 3.0], "in a map": {"a": number}}[place]
    assert Outcome.FAIL is outcome(healthy(**{name: value}))


@given(st.sets(NAMES, min_size=1))
def test_what_is_missing_never_passes(names: set[str]) -> None:
    """A missing measurement is NOT_MEASURED, or fails a rule together with other measurements."""
    assert Outcome.NOT_MEASURED is outcome(healthy(**dict.fromkeys(names, ...)))


@given(NAMES, json_values)
def test_what_is_of_the_wrong_type_never_passes(name: str, value: Any) -> None:
    """A value of another type than the contract's does not pass."""
    wanted = {"given": int, "returned": int, "smallest": (int, float), "largest": (int, float), "values": list}[name]
    whole = isinstance(value, float) and value.is_integer() and wanted is int
    if whole or (isinstance(value, wanted) and not isinstance(value, bool)):
        return
    assert Outcome.PASS is not outcome(healthy(**{name: value}))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"values": []}, Outcome.FAIL),
        ({"values": {}}, Outcome.FAIL),
        ({"values": [[]]}, Outcome.FAIL),
        ({"given": 0, "returned": 0}, Outcome.FAIL),
        ({"given": True}, Outcome.FAIL),
        ({"given": 3.0}, Outcome.PASS),
        ({"given": "3"}, Outcome.FAIL),
        ({"returned": 10**300}, Outcome.FAIL),
        ({"smallest": 2**53 + 1, "largest": 2**53 + 2}, Outcome.FAIL),  # one double for both
        ({"undeclared": 1}, Outcome.NOT_MEASURED),
    ],
)
def test_odd_values(changed: dict[str, Any], expected: Outcome) -> None:
    """Empty lists, zero counts and integers that a double does not hold exactly do not pass."""
    assert expected is outcome(healthy(**changed))


_LISTS = contract_of(
    document(
        observation={
            "type": "object",
            "properties": {
                "times": {"type": "array", "maxItems": 9, "x-source": "a test", "items": {"type": "number"}},
                "bare": {"type": "array", "maxItems": 9, "x-source": "a test"},
                "rows": {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "number"}}},
                "wrong": {"type": "array", "maxItems": 0},
            },
        },
        rules=[
            {"id": "soon", "rule": "self.times.all(time, time < 9.0)", "message": "late"},
            {"id": "none", "rule": "!self.bare.exists(one, one > 9.0)", "message": "some"},
            {"id": "each", "rule": "self.rows.all(row, row.all(one, one < 9.0))", "message": "one is not"},
        ],
        mutants=[{**document()["mutants"][0], "violates": ["soon"]}],
    )
)
_TIMES = st.lists(st.floats(0, 8), max_size=3)


@given(_TIMES, _TIMES, st.lists(_TIMES, max_size=3))
def test_no_empty_list_passes_unless_it_must_be_empty(
    times: list[float], bare: list[float], rows: list[list[float]]
) -> None:
    """A keyword or rule over an empty list is vacuously true, so it is NOT_MEASURED."""
    judgment = judge(_LISTS, observe({"times": times, "bare": bare, "rows": rows, "wrong": []}))
    assert (judgment.outcome is Outcome.PASS) == all([times, bare, rows, *rows])
    assert {"times.maxItems", "soon"}.isdisjoint(
        clause.id for clause in judgment.with_outcome(Outcome.PASS) if not times
    )


@given(measurements, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(measured: dict[str, Any], shuffle: random.Random) -> None:
    """A judgment does not depend on the order of the measurements."""
    names = list(measured)
    shuffle.shuffle(names)
    shuffled = {name: measured[name] for name in names}
    assert plain(judge(CONTRACT, observe(measured))) == plain(judge(CONTRACT, observe(shuffled)))


@given(measurements)
def test_judging_again_from_a_file_gives_the_same(measured: dict[str, Any]) -> None:
    """An observation from a file is judged like the original."""
    observation = observe(measured)
    read = Observation.from_json(strictjson.loads(strictjson.dumps(observation.to_json())))
    assert plain(judge(CONTRACT, observation)) == plain(judge(CONTRACT, read))


@given(json_values | measurements, json_values, json_values)
def test_judging_never_raises(measured: Any, parameter: Any, resolved: Any) -> None:
    """Any measurements, parameters and resolved values have a judgment."""
    judgment = judge(CONTRACT, observe(measured, parameters={"steps": parameter}, resolved={"steps": resolved}))
    assert judgment.outcome in Outcome


def test_a_failure_outranks_what_was_not_measured() -> None:
    """If one clause fails, the outcome is FAIL, also if the trial was killed afterwards."""
    assert Outcome.FAIL is outcome(healthy(returned=2, values=...), ending=Ending(EndingKind.KILLED))


@given(measurements)
def test_an_interrupted_trial_refutes_nothing(measured: Any) -> None:
    """Its measurements are provisional: a clause that would fail is NOT_MEASURED, and the others keep their outcome."""
    whole = judge(CONTRACT, observe(measured, resolved={"steps": 2}))
    cut = judge(CONTRACT, observe(measured, resolved={"steps": 2}, ending=Ending(EndingKind.INTERRUPTED)))
    assert cut.outcome is Outcome.NOT_MEASURED
    assert cut.reason is not None
    assert cut.reason.clauses == ("subject.completes",)
    assert not cut.with_outcome(Outcome.FAIL)
    for before, after in zip(whole.clauses[1:], cut.clauses[1:], strict=True):
        assert (before.id, before.value, before.bound) == (after.id, after.value, after.bound)
        assert after.outcome is (Outcome.PASS if before.outcome is Outcome.PASS else Outcome.NOT_MEASURED)
        failed = before.outcome is Outcome.FAIL
        assert after.reason == (Reason(ReasonCode.PROVISIONAL, cause=before.reason) if failed else before.reason)


@pytest.fixture(scope="module")
def on_cuda() -> Contract:
    """The contract with a full profile that requires a GPU."""
    content = document()
    content["target"] = {"type": "cuda"}
    content["profiles"]["full"]["requires"]["device"] = "cuda"
    return contract_of(content)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (EndingKind.NOT_MEASURED, Outcome.NOT_MEASURED),
        (EndingKind.FALSIFIER_FAULT, Outcome.NOT_MEASURED),
        (EndingKind.KILLED, Outcome.NOT_MEASURED),
        (EndingKind.LOST, Outcome.NOT_MEASURED),
        (EndingKind.SUBJECT_FAULT, Outcome.FAIL),
    ],
)
def test_a_trial_that_ended_before_its_work_refutes_nothing(
    on_cuda: Contract, kind: EndingKind, expected: Outcome
) -> None:
    """If the subject is not to blame for the end, it need not have used the GPU."""
    never = Residency(allocator_peak_bytes=0, driver_seen=False)
    circumstances = {"device": Device("cuda", "a GPU"), "resolved": {}, "residency": never}
    ended = observe({}, profile="full", ending=Ending(kind, Phase.SUBJECT, "gone"), **circumstances)
    assert expected is judge(on_cuda, ended).outcome


def test_a_cuda_profile_does_not_pass_on_the_cpu(on_cuda: Contract) -> None:
    """A trial that ran on the CPU fails `resolved.device`."""
    judgment = judge(on_cuda, observe(healthy(), profile="full"))
    expected = ["resolved.device"]
    assert expected == [clause.id for clause in judgment.with_outcome(Outcome.FAIL)]


def test_an_observation_of_the_wrong_form_is_refused() -> None:
    """The error names the place of the fault."""
    with pytest.raises(DocumentError, match=r"^/mesurements: "):
        Observation.from_json({**observe(healthy()).to_json(), "mesurements": {}})
