"""Loading a contract: every refusal names the file, the JSON pointer and the remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.contract import Contract, ContractError
from harness.contract.project import Project
from tests.contracts import IDENTIFIER, contract_of, document
from tests.refusals import changed, observed, refused


def test_the_valid_contract_loads(project: Project) -> None:
    """Nothing is wrong with the contract that the other tests break."""
    assert project.contract(IDENTIFIER).id == IDENTIFIER


def test_fields(contract: Contract) -> None:
    """A loaded contract has its parts as plain values."""
    measurements = frozenset({"given", "returned", "smallest", "largest", "values"})
    expected = (["full", "reduced"], measurements, ["forgets-one"])
    mutants = [mutant.id for mutant in contract.mutants]
    assert expected == (list(contract.profiles), contract.measurements, mutants)


@pytest.mark.parametrize(
    ("content", "pointer", "message", "remedy"),
    [
        (changed("titel", to="x"), "/titel", "unknown key 'titel'", "did you mean 'title'?"),
        (changed("rules", 0, "mesage", to="x"), "/rules/0/mesage", "unknown key 'mesage'", "did you mean 'message'?"),
        (
            observed(loss={"type": "number", "maximun": 1}),
            "/observation/properties/loss/maximun",
            "unknown key 'maximun'",
            "did you mean 'maximum'?",
        ),
        (
            observed(losses={"type": "array", "minItems": 1, "items": {"type": "number", "formatt": "x"}}),
            "/observation/properties/losses/items/formatt",
            "unknown key 'formatt'",
            "known here: $ref",
        ),
        (
            changed("observation", "required", to=["given"]),
            "/observation/required",
            "unknown key 'required'",
            "known here: type, title",
        ),
        (changed("claim"), "", "the key 'claim' is missing", "add 'claim'"),
        (changed("mutants"), "", "the key 'mutants' is missing", "add a mutant"),
        (changed("mutants", to=[]), "/mutants", "[] should be non-empty", "add a mutant"),
        (
            changed("mutants", 0, "violates", to=[]),
            "/mutants/0/violates",
            "[] should be non-empty",
            "name the clauses that this defect must violate",
        ),
        (
            changed("mutants", 0, "violates", to=["nothing-losst"]),
            "/mutants/0/violates/0",
            "'nothing-losst' is no clause of this contract",
            "clauses: given.const, given.type",
        ),
        (
            changed("mutants", 0, "subject", to="falsifiers.demo.sorting:Sorter"),
            "/mutants/0/subject",
            "is the subject itself, unchanged",
            "name a subject with the defect",
        ),
        (
            changed("mutants", 0, "parameters", to={"size": 3}),
            "/mutants/0/parameters/size",
            "no profile has a parameter 'size'",
            "remove it",
        ),
        (
            changed("mutants", 1, to=document()["mutants"][0]),
            "/mutants/1/id",
            "the id 'forgets-one' occurs twice",
            "give each its own",
        ),
        (
            changed("rules", 1, "id", to="nothing-lost"),
            "/rules/1/id",
            "the id 'nothing-lost' occurs twice",
            "give each",
        ),
        (
            changed("target", to={"type": "cpu", "compute_capability": "9.0"}),
            "/target",
            "a CPU has no compute capability",
            "say 'type': 'cuda'",
        ),
        (
            changed("profiles", "full", "requires", "device", to="cuda"),
            "/target/type",
            "the full profile requires CUDA, so it never runs on the target",
            "say 'cuda'",
        ),
        (changed("lease", to="mine"), "/lease", "'mine' is not one of ['shared', 'exclusive']", "the schema asks for"),
        (
            observed(Loss={"type": "number"}),
            "/observation/properties/Loss",
            "the name 'Loss' is not of the form",
            "rename it",
        ),
        (
            observed(loss={"minimum": 0}),
            "/observation/properties/loss",
            "would accept a value of any type",
            "add 'type'",
        ),
        (
            observed(losses={"type": "array", "minItems": 1, "items": {}}),
            "/observation/properties/losses/items",
            "would accept a value of any type",
            "add 'type'",
        ),
        (
            observed(both={"type": "object", "properties": {}, "additionalProperties": {"type": "number"}}),
            "/observation/properties/both",
            "has both 'properties' and 'additionalProperties'",
            "remove 'additionalProperties'",
        ),
        (
            observed(losses={"type": "array", "minItems": 10**9}),
            "/observation/properties/losses/minItems",
            "1000000000 is greater than the maximum of 100000",
            "measure a digest or a count",
        ),
        ({**document(), "profiles": {}}, "/profiles", "{} should be non-empty", "the schema asks for minProperties 1"),
    ],
)
def test_keys_and_values(project: Project, content: dict[str, Any], pointer: str, message: str, remedy: str) -> None:
    """An unknown, misspelt, missing or wrong key is refused, also inside the observation and its rules."""
    (problem,) = refused(project, content)
    assert (pointer, message) == (problem.pointer, problem.message[: len(message)])
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("old", "new", "pointer", "message"),
    [
        ('"minimum": 0', '"minimum": NaN', "/observation/properties/returned/minimum", "NaN is not JSON"),
        (
            '"minimum": 0',
            '"minimum": 1e999',
            "/observation/properties/returned/minimum",
            "the number 1e999 does not fit",
        ),
        ('"seconds": 60', '"seconds": Infinity', "/profiles/full/limits/seconds", "Infinity is not JSON"),
        ('"title":', '"title": "first", "title":', "/title", "the key 'title' occurs twice in one object"),
        (
            '"const": 3',
            '"const": 4, "const": 3',
            "/observation/properties/given/const",
            "the key 'const' occurs twice in one object",
        ),
        ('"const": 3', f'"const": {"[" * 200}{"]" * 200}', "", "nested too deeply"),
        ('"minimum": 0', '"minimum": 0,', "", ""),  # the words are Python's own
    ],
)
def test_strict_json(project: Project, old: str, new: str, pointer: str, message: str) -> None:
    """What is not strict JSON is refused at its place, although Python would read it."""
    text = json.dumps(document())
    assert old in text
    (problem,) = refused(project, text.replace(old, new, 1))
    assert (pointer, message) == (problem.pointer, problem.message[: len(message)])
    assert problem.remedy


def test_a_file_that_cannot_be_read(project: Project) -> None:
    """A contract that is not there is refused as one, not with a traceback."""
    with pytest.raises(ContractError, match="No such file"):
        project.load(project.root / "contracts" / "F-NONE-001.json")


def test_a_deep_observation_is_refused_or_loaded() -> None:
    """Nesting that a file may have ends in an answer, not in an exhausted stack."""
    schema: dict[str, Any] = {"type": "number"}
    for _ in range(90):
        schema = {"type": "array", "minItems": 1, "items": schema}
    try:
        loaded = contract_of(observed(deep=schema))
    except ContractError as error:
        assert "nested too deeply" in str(error)  # noqa: PT017
    else:
        assert len(loaded.clauses) > 180
