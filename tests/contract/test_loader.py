"""Loading a contract: every refusal names the file, the JSON pointer and the remedy."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness.base.schemas import Problem
from harness.contract import ContractError
from harness.contract.project import Project
from tests.contracts import contract_of, document
from tests.refusals import changed, observed, refused

_REFUSED: list[tuple[dict[str, Any], str]] = [
    (changed("titel", to="x"), "/titel"),
    (changed("rules", 0, "mesage", to="x"), "/rules/0/mesage"),
    (
        observed(loss={"type": "number", "maximun": 1}),
        "/observation/properties/loss/maximun",
    ),
    (
        observed(losses={"type": "array", "minItems": 1, "items": {"type": "number", "formatt": "x"}}),
        "/observation/properties/losses/items/formatt",
    ),
    (
        changed("observation", "required", to=["given"]),
        "/observation/required",
    ),
    (changed("claim"), ""),
    (changed("mutants"), ""),
    (changed("mutants", to=[]), "/mutants"),
    (
        changed("mutants", 0, "violates", to=[]),
        "/mutants/0/violates",
    ),
    (
        changed("mutants", 0, "violates", to=["nothing-losst"]),
        "/mutants/0/violates/0",
    ),
    (
        changed("mutants", 0, "subject", to="falsifiers.demo.sorting:Sorter"),
        "/mutants/0/subject",
    ),
    (
        changed("mutants", 0, "parameters", to={"size": 3}),
        "/mutants/0/parameters/size",
    ),
    (
        changed("mutants", 1, to=document()["mutants"][0]),
        "/mutants/1/id",
    ),
    (
        changed("rules", 1, "id", to="nothing-lost"),
        "/rules/1/id",
    ),
    (
        changed("target", to={"type": "cpu", "compute_capability": "9.0"}),
        "/target",
    ),
    (
        changed("profiles", "full", "requires", "device", to="cuda"),
        "/target/type",
    ),
    (changed("lease", to="mine"), "/lease"),
    (
        observed(Loss={"type": "number"}),
        "/observation/properties/Loss",
    ),
    (
        observed(loss={"minimum": 0}),
        "/observation/properties/loss",
    ),
    (
        observed(losses={"type": "array", "minItems": 1, "items": {}}),
        "/observation/properties/losses/items",
    ),
    (
        observed(both={"type": "object", "properties": {}, "additionalProperties": {"type": "number"}}),
        "/observation/properties/both",
    ),
    (
        observed(losses={"type": "array", "minItems": 10**9}),
        "/observation/properties/losses/minItems",
    ),
    ({**document(), "profiles": {}}, "/profiles"),
    ({**document(), "rules": [{"id": "broken", "rule": "self.given <", "message": "x"}]}, "/rules/0/rule"),
]


@pytest.mark.parametrize(("content", "pointer"), _REFUSED)
def test_keys_and_values(project: Project, content: dict[str, Any], pointer: str) -> None:
    """An unknown, misspelt, missing or wrong key is refused at its place, also inside the observation and its rules."""
    (problem,) = refused(project, content)
    assert problem.pointer == pointer
    assert problem.remedy


def test_what_a_refusal_says(project: Project, snapshot: Any) -> None:
    """Each refusal has place, fault and remedy."""
    assert [str(problem) for content, _ in _REFUSED for problem in refused(project, content)] == snapshot


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
    """JSON that Python accepts but that is not strict is refused at its place."""
    text = json.dumps(document())
    assert old in text
    (problem,) = refused(project, text.replace(old, new, 1))
    assert (pointer, message) == (problem.pointer, problem.message[: len(message)])
    assert problem.remedy


def test_a_file_that_cannot_be_read(project: Project) -> None:
    """A missing file is refused without a traceback."""
    with pytest.raises(ContractError, match="No such file"):
        project.load(project.root / "contracts" / "F-NONE-001" / "contract.json")


def test_a_deep_observation_is_refused_or_loaded() -> None:
    """Deep nesting gives an answer and does not exhaust the stack."""
    schema: dict[str, Any] = {"type": "number"}
    for _ in range(90):
        schema = {"type": "array", "minItems": 1, "maxItems": 1, "items": schema}
    try:
        loaded = contract_of(observed(deep=schema))
    except ContractError as error:
        assert "nested too deeply" in str(error)  # noqa: PT017
    else:
        assert len(loaded.clauses) > 180


@pytest.mark.parametrize(
    ("lease", "exclusive"), [({}, False), ({"lease": "shared"}, False), ({"lease": "exclusive"}, True)]
)
def test_only_an_exclusive_lease_is_exclusive(lease: dict[str, str], exclusive: bool) -> None:
    """Claims share the device unless their contract says otherwise."""
    assert contract_of(json.loads(json.dumps(document(**lease)))).exclusive is exclusive


@pytest.mark.parametrize(("count", "words"), [(1, "1 problem"), (2, "2 problems")])
def test_an_error_counts_its_problems(count: int, words: str) -> None:
    """The first line names the file."""
    error = ContractError(Path("one.json"), [Problem("/a", "wrong", "right")] * count)
    assert str(error).splitlines()[0] == f"one.json: {words}"


def test_a_mutant_can_use_less_than_the_subject() -> None:
    """A mutant that states no memory needs as much as the profile requires."""
    content = document()
    plain = content["mutants"][0]
    content["mutants"] = [plain, plain | {"id": "small", "memory_gib": 2.5, "lease": "shared"}]
    loaded = contract_of(content)
    assert [(one.memory_gib, one.shares) for one in loaded.mutants] == [(math.inf, False), (2.5, True)]


def test_a_profile_can_have_a_lease_of_its_own() -> None:
    content = document() | {"lease": "exclusive"}
    content["profiles"]["reduced"] = content["profiles"]["reduced"] | {"lease": "shared"}
    loaded = contract_of(content)
    assert {name: one.exclusive for name, one in loaded.profiles.items()} == {"full": True, "reduced": False}
    assert loaded.exclusive


def test_mutants_share_a_variant() -> None:
    """A variant gives a mutant the keys that it lacks. A name that no variant has is refused."""
    shared = {"memory_gib": 2.0, "lease": "shared", "parameters": {"steps": 1}}
    mutant = {**document()["mutants"][0], "variant": "short", "memory_gib": 1.0}
    (loaded,) = contract_of(document(variants={"short": shared}, mutants=[mutant])).mutants
    assert (loaded.memory_gib, loaded.shares, loaded.parameters) == (1.0, True, {"steps": 1})
    with pytest.raises(ContractError) as error:
        contract_of(document(variants={"long": shared}, mutants=[mutant]))
    assert [problem.pointer for problem in error.value.problems] == ["/mutants/0/variant"]
