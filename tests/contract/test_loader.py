"""Loading a contract: every refusal names the file, the JSON pointer and the remedy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.base.schemas import Problem
from harness.contract import ContractError
from harness.contract.project import Project
from tests.contracts import FALSIFIER, IDENTIFIER, contract_of, document, write_contract
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
    assert [(mutant.memory_gib, mutant.shares) for mutant in loaded.mutants] == [(math.inf, False), (2.5, True)]


def test_a_profile_can_have_a_lease_of_its_own() -> None:
    content = document() | {"lease": "exclusive"}
    content["profiles"]["reduced"] = content["profiles"]["reduced"] | {"lease": "shared"}
    loaded = contract_of(content)
    assert {name: profile.exclusive for name, profile in loaded.profiles.items()} == {"full": True, "reduced": False}
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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", "../F-DEMO-SORT-001"),
        ("id", "F-DEMO/SORT-001"),
        ("id", "F-DEMO-SORT-001\n"),
        ("id", "/etc/passwd"),
        ("issue", "../../outside"),
        ("issue", "."),
        ("issue", "DEMO-1\n"),
        ("spec", "a/b"),
    ],
)
def test_ids_cannot_leave_their_folder(project: Project, key: str, value: str) -> None:
    """An id becomes the name of a folder, so it must not be a path."""
    (problem,) = refused(project, document(**{key: value}), name=IDENTIFIER)
    assert f"/{key}" == problem.pointer
    assert "is not of the form" in problem.message


def test_a_mutants_id_cannot_leave_its_folder(project: Project) -> None:
    """A mutant's id names a folder of the bundle."""
    (problem,) = refused(project, changed("mutants", 0, "id", to="../../x"))
    assert problem.pointer == "/mutants/0/id"
    assert "is not of the form" in problem.message


@pytest.mark.parametrize("steps", [("observation", "properties"), ("profiles", "full", "parameters")])
def test_no_name_makes_a_map_a_number(project: Project, steps: tuple[str, ...]) -> None:
    """A map key `nonfinite` is refused.

    A bundle writes NaN as `{"nonfinite": "NaN"}`, so such a map would be read as a number.
    """
    content = document()
    holder = content
    for step in steps:
        holder = holder[step]
    holder["nonfinite"] = {"type": "string"} if steps[0] == "observation" else "NaN"
    assert [problem.pointer for problem in refused(project, content)] == ["/" + "/".join((*steps, "nonfinite"))]


def test_the_folder_is_called_like_the_claim(project: Project) -> None:
    """A claim is found by the name of its folder."""
    (problem,) = refused(project, document(), name="F-OTHER-001")
    assert ("/id", f"name the folder {IDENTIFIER}") == (problem.pointer, problem.remedy)


def _missing_module(root: Path) -> str:
    return "falsifiers.demo.sortng:falsify"


def _missing_name(root: Path) -> str:
    return "falsifiers.demo.sorting:falsfy"


def _installed(root: Path) -> str:
    return "json:loads"


def _not_python(root: Path) -> str:
    (root / "falsifiers" / "broken.py").write_text("def (", encoding="utf-8")
    return "falsifiers.broken:falsify"


def _linked_file(root: Path) -> str:
    outside = root.parent / "outside.py"
    outside.write_text(FALSIFIER, encoding="utf-8")
    (root / "falsifiers" / "linked.py").symlink_to(outside)
    return "falsifiers.linked:falsify"


def _linked_folder(root: Path) -> str:
    outside = root.parent / "elsewhere"
    outside.mkdir()
    (outside / "sorting.py").write_text(FALSIFIER, encoding="utf-8")
    (root / "falsifiers" / "linked").symlink_to(outside)
    return "falsifiers.linked.sorting:falsify"


@pytest.mark.parametrize(
    ("entry_point", "name"),
    [
        (_missing_module, "falsifiers.demo.sortng"),
        (_missing_name, "falsfy"),
        (_installed, "json"),
        (_not_python, "broken.py"),
        (_linked_file, "falsifiers.linked:falsify"),
        (_linked_folder, "outside"),
    ],
)
@pytest.mark.parametrize(
    ("steps", "pointer"), [(("falsifier",), "/falsifier"), (("mutants", 0, "subject"), "/mutants/0/subject")]
)
def test_entry_points(
    project: Project, entry_point: Callable[[Path], str], name: str, steps: tuple[str | int, ...], pointer: str
) -> None:
    """An entry point that does not exist, or lies outside the project's root, is refused without an import."""
    (problem,) = refused(project, changed(*steps, to=entry_point(project.root)))
    assert pointer == problem.pointer
    assert name in problem.message
    remedies = {_not_python: "correct the file", _missing_name: "did you mean falsify?"}
    assert remedies.get(entry_point, "under the project's root") in problem.remedy


@pytest.mark.parametrize(
    "text", ["os.system", "falsifiers/demo:falsify", "../demo:falsify", "a:b:c", ":falsify", "a.b:c.d"]
)
def test_entry_points_have_one_form(project: Project, text: str) -> None:
    """The only form of an entry point is `module.path:Name`."""
    (problem,) = refused(project, document(falsifier=text))
    assert problem.pointer == "/falsifier"
    assert "is not of the form" in problem.message


@pytest.mark.parametrize(
    "source",
    [
        "from falsifiers.demo.sorting import falsify",
        "from falsifiers.demo.sorting import Sorter as falsify",
        "falsify = lambda trial: None",
        "try:\n    import fast\nexcept ImportError:\n    def falsify(trial): ...",
    ],
)
def test_entry_points_may_be_defined_in_many_ways(project: Project, source: str) -> None:
    """A name is found where a module defines, assigns or imports it."""
    (project.root / "falsifiers" / "other.py").write_text(source, encoding="utf-8")
    path = write_contract(project.root, document(falsifier="falsifiers.other:falsify"))
    assert "falsifiers.other:falsify" in project.load(path).entry_points


def test_loading_runs_nothing(project: Project) -> None:
    """Loading does not run the code that the contract names."""
    (project.root / "falsifiers" / "trap.py").write_text("falsify = 1\nraise SystemExit(3)", encoding="utf-8")
    path = write_contract(project.root, document(falsifier="falsifiers.trap:falsify"))
    assert "falsifiers.trap:falsify" in project.load(path).entry_points
