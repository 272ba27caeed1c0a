"""Loading a contract: every refusal names the file, the JSON pointer and the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.contract import Contract, ContractError
from harness.project import Project
from harness.schemas import Problem
from tests.contracts import FALSIFIER, IDENTIFIER, contract_of, document, write_contract

_MISSING = object()


def refused(project: Project, content: dict[str, Any] | str, name: str = "") -> list[Problem]:
    """The problems for which a contract is refused; the error names the file."""
    path = write_contract(project.root, content, name)
    with pytest.raises(ContractError) as error:
        project.load(path)
    assert path == error.value.path
    assert str(path) in str(error.value)
    return error.value.problems


def changed(*steps: str | int, to: Any = _MISSING) -> dict[str, Any]:
    """The valid contract with one value, found by its steps, replaced or removed."""
    whole = document()
    place: Any = whole
    for step in steps[:-1]:
        place = place[step]
    if to is _MISSING:
        del place[steps[-1]]
    elif isinstance(place, list) and steps[-1] == len(place):
        place.append(to)
    else:
        place[steps[-1]] = to
    return whole


def observed(**properties: Any) -> dict[str, Any]:
    """The valid contract with these properties added to its observation."""
    whole = document()
    whole["observation"]["properties"].update(properties)
    return whole


def ruled(rule: str) -> dict[str, Any]:
    """The valid contract with one rule added."""
    return changed("rules", 2, to={"id": "added", "rule": rule, "message": "the message"})


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
        (
            changed("mutants", 0, "ratios", to={"reduced": {"nothing-lost": 2.0}}),
            "/mutants/0/ratios/reduced/nothing-lost",
            "'nothing-lost' has no threshold to which a ratio could be taken",
            "give ratios for bounds above 0",
        ),
        (
            changed("mutants", 0, "ratios", to={"reduced": {"ordered": 2.0}}),
            "/mutants/0/ratios/reduced/ordered",
            "'ordered' is no clause that this mutant must violate",
            "it violates nothing-lost",
        ),
        (
            changed("mutants", 0, "ratios", to={"reduced": {"nothing-lost": 0.5}}),
            "/mutants/0/ratios/reduced/nothing-lost",
            "0.5 is less than or equal to the minimum of 1",
            "above 1 by definition",
        ),
        (
            changed("mutants", 0, "ratios", to={"small": {"nothing-lost": 2.0}}),
            "/mutants/0/ratios/small",
            "unknown key 'small'",
            "known here: full, reduced",
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


@pytest.mark.parametrize(
    ("schema", "definitions", "pointer", "message"),
    [
        (
            {"$ref": "https://example.org/schema.json"},
            {},
            "/observation/properties/added/$ref",
            "'https://example.org/schema.json' is not of the form",
        ),
        ({"$ref": "other.json#/$defs/a"}, {}, "/observation/properties/added/$ref", "'other.json#/$defs/a' is not of"),
        ({"$ref": "#/properties/given"}, {}, "/observation/properties/added/$ref", "'#/properties/given' is not of"),
        ({"$ref": "#/$defs/b"}, {}, "/observation/properties/added/$ref", "#/$defs/b does not exist"),
        (
            {"$ref": "#/$defs/a"},
            {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
            "/observation/$defs/a/items/$ref",
            "#/$defs/a refers to itself",
        ),
        (
            {"$ref": "#/$defs/a"},
            {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            "/observation/$defs/b/$ref",
            "#/$defs/a refers to itself",
        ),
        (
            {"$ref": "#/$defs/a", "maximum": 9},
            {"a": {"type": "number", "maximum": 5}},
            "/observation/properties/added/maximum",
            "#/$defs/a has 'maximum' too",
        ),
        (
            {"$ref": "#/$defs/a0"},
            {
                f"a{level}": {
                    "type": "object",
                    "properties": {name: {"$ref": f"#/$defs/a{level + 1}"} for name in ("x", "y")},
                }
                for level in range(40)
            }
            | {"a40": {"type": "number"}},
            "/observation/$defs",
            "writing the references out gives over 2000 schemas",
        ),
    ],
)
def test_references(
    project: Project, schema: dict[str, Any], definitions: dict[str, Any], pointer: str, message: str
) -> None:
    """A reference that is remote, recursive, dangling, contradicted or explosive is refused."""
    content = observed(added=schema)
    content["observation"]["$defs"] = definitions
    problem = refused(project, content)[0]
    assert (pointer, message) == (problem.pointer, problem.message[: len(message)])
    assert problem.remedy


def test_local_references_are_put_in_place(project: Project) -> None:
    """A definition of the observation may be used, and added to."""
    content = observed(a={"$ref": "#/$defs/loss"}, b={"$ref": "#/$defs/loss", "maximum": 5, "x-source": "here"})
    content["observation"]["$defs"] = {"loss": {"type": "number", "minimum": 0}}
    contract = project.load(write_contract(project.root, content))
    expected = ["a.type", "a.minimum", "b.type", "b.minimum", "b.maximum"]
    assert expected == [clause.id for clause in contract.clauses if clause.path[0] in "ab"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.given <", "does not compile"),
        ("self.gven == 3.0", "self.gven is not in the observation"),
        ("self.given.count == 3.0", "self.given.count is not in the observation"),
        ("self.given == parameters.setps", "parameters.setps is not in profile full"),
        ("self.given == 3.0 || device.typ == 'cpu'", "device.typ does not exist"),
        ("self.given == limit", "names 'limit', which does not exist"),
        ("abs(self.given) < 1.0", "calls abs(), which does not exist"),
        ("parameters.steps == 3.0", "reads no measurement"),
        ("self == self", "uses self, parameters or device as a whole"),
    ],
)
def test_rules(project: Project, rule: str, message: str) -> None:
    """A rule that does not compile, or names what there is not, is refused."""
    (problem,) = refused(project, ruled(rule))
    assert ("/rules/2/rule", message) == (problem.pointer, problem.message[: len(message)])
    assert problem.remedy


@pytest.mark.parametrize("pattern", ["(?=a)a", r"(a+)\1", "(", "((a{100}){100}){100}"])
def test_patterns(project: Project, pattern: str) -> None:
    """A regular expression that could run away is refused where it stands."""
    (problem,) = refused(project, observed(digest={"type": "string", "pattern": pattern}))
    assert problem.pointer == "/observation/properties/digest/pattern"
    assert "RE2" in problem.remedy


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
    """An id becomes the name of a folder, so it is no path."""
    (problem,) = refused(project, document(**{key: value}), name=IDENTIFIER)
    assert f"/{key}" == problem.pointer
    assert "is not of the form" in problem.message


def test_a_mutants_id_cannot_leave_its_folder(project: Project) -> None:
    """A mutant's id names a folder of the bundle."""
    (problem,) = refused(project, changed("mutants", 0, "id", to="../../x"))
    assert problem.pointer == "/mutants/0/id"
    assert "is not of the form" in problem.message


def test_the_file_is_called_like_the_claim(project: Project) -> None:
    """A claim is found by the name of its file."""
    (problem,) = refused(project, document(), name="F-OTHER-001")
    assert ("/id", f"name the file {IDENTIFIER}.json") == (problem.pointer, problem.remedy)


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
    ("entry_point", "message"),
    [
        (_missing_module, "there is no module falsifiers.demo.sortng under"),
        (_missing_name, "does not define falsfy"),
        (_installed, "there is no module json under"),
        (_not_python, "is not valid Python"),
        (_linked_file, "leads outside"),
        (_linked_folder, "leads outside"),
    ],
)
@pytest.mark.parametrize(
    ("steps", "pointer"), [(("falsifier",), "/falsifier"), (("mutants", 0, "subject"), "/mutants/0/subject")]
)
def test_entry_points(
    project: Project, entry_point: Callable[[Path], str], message: str, steps: tuple[str | int, ...], pointer: str
) -> None:
    """An entry point that does not resolve, or lies outside the project's root, is refused without importing it."""
    (problem,) = refused(project, changed(*steps, to=entry_point(project.root)))
    assert pointer == problem.pointer
    assert message in problem.message
    assert "under the project's root" in problem.remedy


@pytest.mark.parametrize(
    "text", ["os.system", "falsifiers/demo:falsify", "../demo:falsify", "a:b:c", ":falsify", "a.b:c.d"]
)
def test_entry_points_have_one_form(project: Project, text: str) -> None:
    """An entry point is `module.path:Name` and nothing else."""
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
    """A contract is loaded without running the code that it names."""
    (project.root / "falsifiers" / "trap.py").write_text("falsify = 1\nraise SystemExit(3)", encoding="utf-8")
    path = write_contract(project.root, document(falsifier="falsifiers.trap:falsify"))
    assert "falsifiers.trap:falsify" in project.load(path).entry_points


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
