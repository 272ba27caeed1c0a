"""What the parts of a contract say of one another: every contradiction, its place, and the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from harness.contract import ContractError
from tests.contracts import contract_of, document

_DECLARED = "declared there: given, largest, returned, smallest, values"
_NUMBER = {"type": "number"}
_BOUNDED = {"type": "number", "maximum": 2.0, "x-source": "a test"}


def problems(**changes: Any) -> list[tuple[str, str, str]]:
    """The place, the message and the remedy of everything that is refused."""
    with pytest.raises(ContractError) as refused:
        contract_of(document(**changes))
    return [(one.pointer, one.message, one.remedy) for one in refused.value.problems]


def with_profiles(full: dict[str, Any], reduced: dict[str, Any]) -> dict[str, Any]:
    """Both profiles, each changed."""
    profiles = document()["profiles"]
    return {"full": {**profiles["full"], **full}, "reduced": {**profiles["reduced"], **reduced}}


def rules(*texts: str) -> list[dict[str, Any]]:
    """The rules of the tiny contract, and these."""
    more = [{"id": f"rule-{number}", "rule": text, "message": "no"} for number, text in enumerate(texts)]
    return [*document()["rules"], *more]


def mutant(**changes: Any) -> list[dict[str, Any]]:
    """The mutant of the tiny contract, changed."""
    return [{**document()["mutants"][0], **changes}]


def test_parameters_are_those_that_are_declared() -> None:
    """Of every profile: one that is not declared, one that is missing, one beyond its bound."""
    declared = {"steps": {"type": "integer", "minimum": 5, "x-source": "a test"}, "model": {"type": "string"}}
    parameters = {"type": "object", "properties": declared}
    profiles = with_profiles(
        {"parameters": {"steps": 5, "model": "m", "size": 1}}, {"parameters": {"steps": 3, "model": "m"}}
    )
    assert problems(parameters=parameters, profiles=profiles) == [
        (
            "/profiles/full/parameters/size",
            "'size' is not declared",
            "declare it in parameters.properties, or remove it",
        ),
        ("/profiles/reduced/parameters/steps", "3 violates minimum 5", "see parameters of the contract"),
    ]
    profiles = with_profiles({"parameters": {"steps": 5, "model": "m"}}, {"parameters": {"steps": 5}})
    assert problems(parameters=parameters, profiles=profiles) == [
        (
            "/profiles/reduced/parameters",
            "lacks 'model', which the contract declares",
            "set it in every profile",
        ),
    ]


def test_the_target_is_hardware_on_which_the_full_profile_can_run() -> None:
    """A CPU has no compute capability, and runs nothing that requires CUDA."""
    assert problems(
        target={"type": "cpu", "compute_capability": "9.0"},
        profiles=with_profiles({"requires": {"device": "cuda"}}, {}),
    ) == [
        ("/target", "a CPU has no compute capability", "say 'type': 'cuda', or leave one of them out"),
        ("/target/type", "the full profile requires CUDA, so it never runs on the target", "say 'cuda'"),
    ]
    reduced = with_profiles({}, {"requires": {"device": "cuda"}})
    contract_of(document(target={"type": "cpu"}, profiles=reduced))
    contract_of(document(target={"compute_capability": "9.0"}))


def test_omissions_are_measurements_and_leave_some() -> None:
    """Never of the full profile."""
    assert problems(profiles=with_profiles({"omits": ["values"]}, {"omits": ["zeal", "ardour", "values"]})) == [
        ("/profiles/full/omits", "the full profile is what the claim speaks of", "measure all of it there"),
        ("/profiles/reduced/omits", "'ardour' is not in the observation", _DECLARED),
        ("/profiles/reduced/omits", "'zeal' is not in the observation", _DECLARED),
    ]
    everything = list(document()["observation"]["properties"])
    assert problems(profiles=with_profiles({}, {"omits": everything})) == [
        ("/profiles/reduced/omits", "nothing is left to be judged", "omit less, or remove the profile"),
    ]
    contract_of(document(profiles=with_profiles({}, {"omits": everything[1:]})))


def test_rules_read_what_there_is() -> None:
    """Every name, at every depth, is looked up in the observation, in every profile, and among the device's fields."""
    observation = {
        "type": "object",
        "properties": {
            **document()["observation"]["properties"],
            "nested": {"type": "object", "properties": {"loss": _NUMBER, "gain": _NUMBER}},
        },
    }
    profiles = with_profiles({"parameters": {"steps": 3}}, {"parameters": {"steps": 3, "small": 1}})
    found = problems(
        observation=observation,
        profiles=profiles,
        rules=rules(
            "self.nested.loss < self.nested.lost",
            "self.missing.loss < self.given.loss",
            "self.given < parameters.small && self.given < parameters.steps",
            "device.color == 'red' && device.name != '' && self.given > 0.0",
        ),
    )
    known = "type, name, compute_capability, memory_bytes, memory_source, unified, uuid"
    assert found == [
        ("/rules/2/rule", "self.nested.lost is not in the observation", "declared there: gain, loss"),
        (
            "/rules/3/rule",
            "self.missing.loss is not in the observation",
            "declared there: given, largest, nested, returned, smallest, values",
        ),
        ("/rules/3/rule", "self.given.loss is not in the observation", "declared there: nothing"),
        ("/rules/4/rule", "parameters.small is not in profile full", "add it to every profile"),
        ("/rules/5/rule", "device.color does not exist", f"known: {known}"),
    ]


@pytest.mark.parametrize(
    "field", ["type", "name", "compute_capability", "memory_bytes", "memory_source", "unified", "uuid"]
)
def test_a_rule_may_read_every_field_of_a_device(field: str) -> None:
    """The observation has them all."""
    contract_of(document(rules=rules(f"device.{field} != 0.0 && self.given > 0.0")))


def test_ids_occur_once() -> None:
    """Those of rules and those of mutants; a third of the same name is told as well."""
    rule, one = document()["rules"][0], document()["mutants"][0]
    other = {**one, "id": "another"}
    assert problems(rules=[rule, rule, rule], mutants=[one, other, one]) == [
        ("/rules/1/id", "the id 'nothing-lost' occurs twice", "give each its own"),
        ("/rules/2/id", "the id 'nothing-lost' occurs twice", "give each its own"),
        ("/mutants/2/id", "the id 'forgets-one' occurs twice", "give each its own"),
    ]


def test_mutants_are_told_from_the_subject_and_violate_what_there_is() -> None:
    """Clauses, parameters, and the subject itself, which is a mutant only with other parameters."""
    itself = document()["subject"]
    clauses = "given.const, given.type, largest.type, nothing-lost, ordered, residency.allocator, "
    clauses += "residency.driver, resolved.device, resolved.steps, returned.minimum, returned.type, smallest.type, "
    clauses += "subject.completes, values.minItems, values.type, values[].type"
    assert problems(mutants=mutant(subject=itself, violates=["ordered", "no-such"])) == [
        ("/mutants/0/violates/1", "'no-such' is no clause of this contract", f"clauses: {clauses}"),
        ("/mutants/0/subject", "is the subject itself, unchanged", "name a subject with the defect"),
    ]
    assert problems(mutants=mutant(parameters={"steps": 9, "size": 3})) == [
        ("/mutants/0/parameters/size", "no profile has a parameter 'size'", "remove it"),
    ]
    contract_of(document(mutants=mutant(subject=itself, parameters={"steps": 9})))


def test_examples_are_of_measurements() -> None:
    """A misspelt name in the example of an observation is refused."""
    observation = {**document()["observation"], "examples": [{"smallest": 1.0}, {"smalest": 1.0}]}
    assert [place for place, *_ in problems(observation=observation)] == ["/observation/examples/1/smalest"]
