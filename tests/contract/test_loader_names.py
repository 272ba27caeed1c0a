"""Names in a contract cannot lead to other places: ids, and entry points, which are found without running code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.contract.project import Project
from tests.contracts import FALSIFIER, IDENTIFIER, document, write_contract
from tests.refusals import changed, refused


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
    assert ("correct the file" if entry_point is _not_python else "under the project's root") in problem.remedy


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
