"""Cases of a search are judged by the clauses on items and kept as strict JSON."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.authoring.setting import Setting
from harness.base import strictjson
from harness.base.device import Device
from harness.base.schemas import DocumentError
from harness.base.vocabulary import Outcome
from harness.contract import Contract
from harness.judging.counterexample import (
    COUNTEREXAMPLE,
    Counterexample,
    clauses_on_cases,
    judge_case,
    nearness,
)
from harness.tools.search import cases as searching
from harness.tools.search.cases import CaseSearch
from tests.contracts import contract_of, document
from tests.searching import CONTRACT

CASE = {"left": 1, "right": [0.5, "x"]}


@pytest.fixture
def contract() -> Contract:
    """Two lists with bounded items, a rule between them, and a rule that also reads a count."""
    items = {"type": "array", "minItems": 20, "items": {"type": "number", "maximum": 2.0}}
    properties = {**document()["observation"]["properties"], "errors": items, "others": items}
    rules = [
        *document()["rules"],
        {"id": "ordered-lists", "rule": "self.errors[0] <= self.others[0]", "message": "no"},
        {"id": "enough", "rule": "double(size(self.errors)) >= self.given", "message": "too few"},
    ]
    return contract_of(document(observation={"type": "object", "properties": properties}, rules=rules))


def test_only_clauses_on_items_are_asked(contract: Contract) -> None:
    """One case cannot violate a bound on a list's length, nor a rule about the whole search."""
    ids = {clause.id for clause in clauses_on_cases(contract, frozenset({"errors", "others"}))}
    assert ids == {"errors[].type", "errors[].maximum", "others[].type", "others[].maximum", "ordered-lists"}
    assert "ordered-lists" not in {clause.id for clause in clauses_on_cases(contract, frozenset({"errors"}))}


def test_clauses_inside_an_item_are_asked() -> None:
    """Clauses at any depth of an item belong to one case."""
    parts = {"type": "array", "minItems": 1, "items": {"type": "number", "maximum": 2.0, "x-source": "a test"}}
    item = {"type": "object", "properties": {"loss": {"type": "number"}, "parts": parts}}
    observation = {
        "type": "object",
        "properties": {
            **document()["observation"]["properties"],
            "errors": {"type": "array", "minItems": 20, "items": item},
        },
    }
    contract = contract_of(document(observation=observation))
    ids = [clause.id for clause in clauses_on_cases(contract, frozenset({"errors"}))]
    inside = ["loss.type", "parts.type", "parts.minItems", "parts[].type", "parts[].maximum"]
    assert ids == ["errors[].type", "errors[].closed", *(f"errors[].{name}" for name in inside)]
    assert failed(contract, errors={"loss": 1.0, "parts": [1.0, 3.0]}) == {"errors[].parts[].maximum"}


def failed(contract: Contract, **measured: Any) -> set[str]:
    """The clauses that a case violates."""
    return {
        clause.id
        for clause in judge_case(contract, measured, {}, Device("cpu", "a CPU"))
        if clause.outcome is Outcome.FAIL
    }


def test_a_case_is_judged_as_the_observation_will_be(contract: Contract) -> None:
    """A case fails by a bound on items, by a rule between lists, or by a number that is not finite."""
    assert failed(contract, errors=1.0, others=1.5) == set()
    assert failed(contract, errors=3.0, others=4.0) == {"errors[].maximum", "others[].maximum"}
    assert failed(contract, errors=1.0, others=0.5) == {"ordered-lists"}
    assert failed(contract, errors=math.nan) == {"errors[].maximum", "errors[].type"}
    assert nearness(contract, {"errors": 1.0, "others": 4.0}, {}, Device("cpu", "a CPU")) == {
        "errors[].maximum": 0.5,
        "others[].maximum": 2.0,
        "ordered-lists": 0.25,
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text("abc"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["errors", "others"]), JSON), st.text(), st.booleans(), st.none() | st.booleans()
)
def test_a_counterexample_survives_its_file(
    measured: dict[str, Any], error: str, shrunk: bool, repeats: bool | None
) -> None:
    """A file keeps all of it, also numbers that are not finite."""
    kept = Counterexample(CASE, ("errors[].maximum",), measured, error, 7, shrunk, repeats)
    text = strictjson.dumps(kept.to_json())
    assert repr(Counterexample.from_json(strictjson.loads(text))) == repr(kept)


@pytest.mark.parametrize("key", ["case", "clauses", "format", "tried"])
def test_what_is_no_counterexample_is_refused(key: str) -> None:
    """A missing key, a null and an unknown key are refused."""
    whole = Counterexample(CASE, ("errors[].maximum",), {}).to_json()
    for wrong in (
        {name: value for name, value in whole.items() if name != key},
        {**whole, key: None},
        {**whole, "x": 1},
    ):
        with pytest.raises(DocumentError):
            Counterexample.from_json(wrong)


def test_the_defaults_of_a_counterexample() -> None:
    """The defaults are no error, found with the first case, and not shrunk. The file has this name."""
    plain = Counterexample(CASE, ("errors[].maximum",), {})
    assert plain == Counterexample(CASE, ("errors[].maximum",), {}, error="", tried=1, shrunk=False)
    assert COUNTEREXAMPLE == "counterexample.json"


def test_a_refusal_names_the_first_problems() -> None:
    """The message has the first five problems."""
    with pytest.raises(DocumentError) as refused:
        Counterexample.from_json({f"unknown_{number}": 1 for number in range(9)})
    names = [problem.partition(":")[0] for problem in str(refused.value).split("; ")]
    assert names == [f"/unknown_{number}" for number in range(5)]


def searching_in(folder: Path, attempt: Any, **changed: Any) -> CaseSearch:
    """A search for the simplest refutation, without an end in time."""
    claim = {"contract": CONTRACT, "device": {"type": "cpu", "name": "a CPU"}, "case": None, "until_violated": ()}
    setting = Setting(parameters={}, device="cpu", seed=0, workspace=folder, cache=folder)
    return CaseSearch({**claim, "end": "simplest", "until": math.inf, **changed}, setting, attempt, folder)


def test_shrinking_ends_before_the_trial_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets half of the time that is left, and the simplest case so far is kept."""
    now = 0.0

    def attempt(case: Any) -> dict[str, Any]:
        nonlocal now
        now += 1.0
        return {"errors": float(sum(case["left"]) > 1_234_567)}

    monkeypatch.setattr(searching, "time", SimpleNamespace(monotonic=lambda: now))
    numbers = st.fixed_dictionaries({"left": st.lists(st.integers(0, 10**6), min_size=9, max_size=9)})
    search = searching_in(tmp_path, attempt, until=70.0)
    found = search.explore(numbers, [], 60)
    assert found is not None
    kept = search.shrink(numbers, found, 1000)
    assert now <= 67.0  # the kept case has run once more
    assert kept.violated == found.violated
    assert sum(kept.case["left"]) < sum(found.case["left"])
    assert strictjson.load(tmp_path / COUNTEREXAMPLE)["case"] == kept.case


def test_a_mutants_search_ends_once_its_clauses_are_violated(tmp_path: Path) -> None:
    """A refutation of other clauses does not end it."""
    numbers = st.fixed_dictionaries({"left": st.integers(0, 1000)})
    tried = {}
    for until_violated in ((), ("errors[].maximum",), ("errors[].maximum", "errors[].minimum")):
        attempt = lambda case: {"errors": float(case["left"] == 7)}  # noqa: E731
        search = searching_in(tmp_path, attempt, end="tried", until_violated=until_violated)
        search.explore(numbers, [{"left": 5}, {"left": 7}, {"left": 9}], 60)
        tried[until_violated] = len(search.results)
        assert strictjson.load(tmp_path / COUNTEREXAMPLE)["tried"] == tried[until_violated]
    assert list(tried.values()) == [60, 2, 60]


@pytest.mark.parametrize(("wrong_for", "repeats"), [(math.inf, True), (60, False)])
def test_the_kept_case_runs_once_more(tmp_path: Path, wrong_for: float, repeats: bool) -> None:
    """A subject that is right after its first tries refutes the claim, but does not repeat."""
    ran: list[Any] = []

    def attempt(case: Any) -> dict[str, Any]:
        ran.append(case)
        return {"errors": float(case["left"] > 500 and len(ran) <= wrong_for)}

    numbers = st.fixed_dictionaries({"left": st.integers(0, 1000)})
    search = searching_in(tmp_path, attempt)
    found = search.explore(numbers, [], 60)
    assert found is not None
    kept = search.shrink(numbers, found, 60)
    assert kept.repeats is repeats
    assert ran[-1] == kept.case
    assert strictjson.load(tmp_path / COUNTEREXAMPLE)["repeats"] is repeats
