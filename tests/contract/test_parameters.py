"""Contracts that declare their parameters: what loading them refuses."""

from __future__ import annotations

from typing import Any

import pytest

from harness.contract import Contract, ContractError
from tests.contracts import contract_of, document

STEPS = {"type": "integer", "minimum": 1, "maximum": 100}


def declaring(properties: dict[str, Any], **profile: Any) -> Contract:
    """A contract with these declarations. Its only profile sets steps to 3 and the given values."""
    whole = document(parameters={"type": "object", "properties": properties})
    whole["profiles"]["reduced"]["parameters"] = {"steps": 3, **profile}
    whole["profiles"] = {"reduced": whole["profiles"]["reduced"]}
    return contract_of(whole)


def test_a_contract_may_leave_them_out(contract: Contract) -> None:
    """Without declarations, parameters have the types of the profiles' values."""
    assert contract.parameters is None


def test_values_are_held_against_them() -> None:
    """Every violated bound is named, but only for the given names."""
    declared = declaring({"steps": STEPS}).parameters
    assert declared is not None
    assert [clause.id for clause in declared.violations({"steps": "3"})] == [
        "steps.type",
        "steps.minimum",
        "steps.maximum",
    ]
    assert [clause.id for clause in declared.violations({"steps": float("nan")})][:1] == ["steps.type"]
    assert list(declared.violations({"steps": 100})) == list(declared.violations({})) == []


def test_the_bounds_of_one_parameter_are_its_own() -> None:
    """Each parameter has its own bounds, in the contract's order."""
    declared = declaring({"steps": STEPS, "model": {"type": "string"}}, model="tiny").parameters
    assert declared is not None
    assert declared.names == ("steps", "model")
    assert [clause.id for clause in declared.bounds("steps")] == ["steps.type", "steps.minimum", "steps.maximum"]
    assert [clause.id for clause in declared.bounds("model")] == ["model.type"]
    assert declared.bounds("batch") == ()
    listed = declaring(
        {"steps": STEPS, "rates": {"type": "array", "items": {"type": "number"}}}, rates=[0.5]
    ).parameters
    assert listed is not None
    assert [clause.id for clause in listed.bounds("rates")] == ["rates.type", "rates[].type"]


def test_null_is_allowed_where_a_profile_has_it() -> None:
    """Null means that nothing was chosen. It is allowed only if a profile has it."""
    declared = declaring({"steps": STEPS, "corpus": {"type": "string"}}, corpus=None).parameters
    assert declared is not None
    assert list(declared.violations({"corpus": None})) == []
    assert [clause.id for clause in declared.violations({"corpus": 7, "steps": None})] == [
        "steps.type",
        "steps.minimum",
        "steps.maximum",
        "corpus.type",
    ]


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"steps": STEPS}, {"steps": 0}, "/profiles/reduced/parameters/steps"),
    ({"steps": STEPS}, {"batch": 2}, "/profiles/reduced/parameters/batch"),
    ({"steps": STEPS, "batch": STEPS}, {}, "/profiles/reduced/parameters"),
    ({"steps": {"minimum": 1}}, {}, "/parameters/properties/steps"),
    ({"steps": {"type": "integer", "minimun": 1}}, {}, "/parameters/properties/steps/minimun"),
    ({"steps": {"$ref": "#/$defs/count"}}, {}, "/parameters/properties/steps/$ref"),
    (
        {"steps": STEPS, "model": {"type": "string", "pattern": "(?=a)"}},
        {"model": "a"},
        "/parameters/properties/model/pattern",
    ),
]


@pytest.mark.parametrize(("properties", "profile", "place"), REFUSED)
def test_refusals(properties: dict[str, Any], profile: dict[str, Any], place: str) -> None:
    """Each refusal has its place in the contract."""
    with pytest.raises(ContractError) as refused:
        declaring(properties, **profile)
    assert place in [problem.pointer for problem in refused.value.problems]
