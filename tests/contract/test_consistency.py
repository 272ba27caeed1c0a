"""Parts of a contract that do not fit together are refused at their place. A snapshot has the messages."""

from __future__ import annotations

from typing import Any

import pytest

from harness.contract import ContractError
from harness.contract.consistency import _MOST_COSTLY
from tests.contracts import contract_of, document

_NUMBER = {"type": "number"}
_BOUNDED = {"type": "number", "maximum": 2.0, "x-source": "a test"}


def problems(words: Any, **changes: Any) -> list[str]:
    """The place of every problem. Messages and remedies must equal the snapshot `words`."""
    with pytest.raises(ContractError) as refused:
        contract_of(document(**changes))
    assert [str(problem) for problem in refused.value.problems] == words
    return [problem.pointer for problem in refused.value.problems]


def with_profiles(full: dict[str, Any], reduced: dict[str, Any]) -> dict[str, Any]:
    """Both profiles with these changes."""
    profiles = document()["profiles"]
    return {"full": {**profiles["full"], **full}, "reduced": {**profiles["reduced"], **reduced}}


def rules(*texts: str) -> list[dict[str, Any]]:
    """The rules of the small contract, and these."""
    more = [{"id": f"rule-{number}", "rule": text, "message": "no"} for number, text in enumerate(texts)]
    return [*document()["rules"], *more]


def mutant(**changes: Any) -> list[dict[str, Any]]:
    """The mutant of the small contract with these changes."""
    return [{**document()["mutants"][0], **changes}]


def test_parameters_are_those_that_are_declared(snapshot: Any) -> None:
    """A profile is refused for an undeclared, a missing and an invalid parameter."""
    declared = {"steps": {"type": "integer", "minimum": 5, "x-source": "a test"}, "model": {"type": "string"}}
    parameters = {"type": "object", "properties": declared}
    profiles = with_profiles(
        {"parameters": {"steps": 5, "model": "m", "size": 1}}, {"parameters": {"steps": 3, "model": "m"}}
    )
    assert problems(snapshot, parameters=parameters, profiles=profiles) == [
        "/profiles/full/parameters/size",
        "/profiles/reduced/parameters/steps",
    ]
    profiles = with_profiles({"parameters": {"steps": 5, "model": "m"}}, {"parameters": {"steps": 5}})
    assert problems(snapshot, parameters=parameters, profiles=profiles) == [
        "/profiles/reduced/parameters",
    ]


def test_the_target_is_hardware_on_which_the_full_profile_can_run(snapshot: Any) -> None:
    """A CPU target must have no compute capability, and its full profile must not require CUDA."""
    assert problems(
        snapshot,
        target={"type": "cpu", "compute_capability": "9.0"},
        profiles=with_profiles({"requires": {"device": "cuda"}}, {}),
    ) == [
        "/target",
        "/target/type",
    ]
    reduced = with_profiles({}, {"requires": {"device": "cuda"}})
    contract_of(document(target={"type": "cpu"}, profiles=reduced))
    contract_of(document(target={"compute_capability": "9.0"}))


def test_omissions_are_measurements_and_leave_some(snapshot: Any) -> None:
    """The full profile omits nothing, and the reduced one keeps at least one clause."""
    assert problems(
        snapshot, profiles=with_profiles({"omits": ["values"]}, {"omits": ["zeal", "ardour", "values"]})
    ) == [
        "/profiles/full/omits",
        "/profiles/reduced/omits",
        "/profiles/reduced/omits",
    ]
    everything = list(document()["observation"]["properties"])
    assert problems(snapshot, profiles=with_profiles({}, {"omits": everything})) == [
        "/profiles/reduced/omits",
    ]
    contract_of(document(profiles=with_profiles({}, {"omits": everything[1:]})))


def test_rules_read_what_there_is(snapshot: Any) -> None:
    """Every name in a rule, at any depth, is a measurement, a parameter or a field of the device."""
    observation = {
        "type": "object",
        "properties": {
            **document()["observation"]["properties"],
            "nested": {"type": "object", "properties": {"loss": _NUMBER, "gain": _NUMBER}},
        },
    }
    profiles = with_profiles({"parameters": {"steps": 3}}, {"parameters": {"steps": 3, "small": 1}})
    found = problems(
        snapshot,
        observation=observation,
        profiles=profiles,
        rules=rules(
            "self.nested.loss < self.nested.lost",
            "self.missing.loss < self.given.loss",
            "self.given < parameters.small && self.given < parameters.steps",
            "device.color == 'red' && device.name != '' && self.given > 0.0",
        ),
    )
    assert found == [
        "/rules/2/rule",
        "/rules/3/rule",
        "/rules/3/rule",
        "/rules/4/rule",
        "/rules/5/rule",
    ]


@pytest.mark.parametrize(
    "field", ["type", "name", "compute_capability", "memory_bytes", "memory_source", "unified", "uuid"]
)
def test_a_rule_may_read_every_field_of_a_device(field: str) -> None:
    """The observation has all of these fields."""
    contract_of(document(rules=rules(f"device.{field} != 0.0 && self.given > 0.0")))


def test_ids_occur_once(snapshot: Any) -> None:
    """Each repeated id of a rule or a mutant is refused."""
    rule, mutant = document()["rules"][0], document()["mutants"][0]
    other = {**mutant, "id": "another"}
    assert problems(snapshot, rules=[rule, rule, rule], mutants=[mutant, other, mutant]) == [
        "/rules/1/id",
        "/rules/2/id",
        "/mutants/2/id",
    ]


def test_mutants_are_told_from_the_subject_and_violate_what_there_is(snapshot: Any) -> None:
    """A mutant names known clauses and parameters, and differs from the subject in at least a parameter."""
    itself = document()["subject"]
    assert problems(snapshot, mutants=mutant(subject=itself, violates=["ordered", "no-such"])) == [
        "/mutants/0/violates/1",
        "/mutants/0/subject",
    ]
    assert problems(snapshot, mutants=mutant(parameters={"steps": 9, "size": 3})) == [
        "/mutants/0/parameters/size",
    ]
    contract_of(document(mutants=mutant(subject=itself, parameters={"steps": 9})))


def test_examples_are_of_measurements(snapshot: Any) -> None:
    """A misspelt name in the example of an observation is refused."""
    observation = {**document()["observation"], "examples": [{"smallest": 1.0}, {"smalest": 1.0}]}
    assert problems(snapshot, observation=observation) == ["/observation/examples/1/smalest"]


def test_the_costliest_clauses_are_refused(snapshot: Any) -> None:
    """The message names the costliest clauses. They are as many as must change to meet the limit, and at most five."""
    nested = "self.values.all(one, self.values.exists(other, other == one))"
    observed = document()["observation"]
    texts = {"type": "string", "maxLength": 1000, "pattern": r"^\w{100}$"}
    table = {"type": "array", "minItems": 1, "maxItems": 5000, "items": texts}
    properties = {**observed["properties"], "table": table}
    properties["values"] = {**properties["values"], "maxItems": 3000}
    changed = {**observed, "properties": properties}
    two = problems(snapshot(name="two"), observation=changed, rules=rules("self.given > 0", nested))
    last = len(document()["rules"]) + 1
    assert two == ["/observation/properties/table/items/pattern", f"/rules/{last}/rule"]
    several = problems(snapshot(name="most"), observation=changed, rules=rules(*[nested] * 5))
    assert len(several) == _MOST_COSTLY


def test_a_rule_that_reads_what_is_missing_is_told_by_its_first_step(snapshot: Any) -> None:
    """A parameter that no profile has, and a field that no device has, are named by the first step of their path."""
    more = rules("self.given > parameters.none.of_it", "self.given > device.none.name")
    first = len(document()["rules"])
    assert problems(snapshot, rules=more) == [f"/rules/{first}/rule", f"/rules/{first + 1}/rule"]
