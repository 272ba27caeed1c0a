"""Finding a project, its contracts, and one claim among them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.contract import ContractError
from harness.contract.imports import imported_libraries
from harness.contract.installed import claims_roots, or_installed, root_of
from harness.contract.project import _MARKS, Mentions, Project, ProjectError
from tests.contracts import IDENTIFIER, document, put, write_contract, write_project


def test_found_from_a_folder_inside(project: Project) -> None:
    """A project is the nearest folder upwards whose pyproject.toml has the table."""
    inner = project.root / "contracts" / "demo"
    assert project == Project.find(inner)


def test_the_nearest_project_wins(project: Project) -> None:
    """A project inside another is separate."""
    inner = write_project(project.root / "inner")
    assert inner == Project.find(inner).root


def test_a_pyproject_without_our_table_is_passed_over(project: Project) -> None:
    """A package with its own pyproject.toml does not hide the project around it."""
    inner = project.root / "package"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    assert project == Project.find(inner)


def test_where_there_is_no_project(tmp_path: Path) -> None:
    """Outside a project the error has the remedy."""
    with pytest.raises(ProjectError, match="harness init"):
        Project.find(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        'contracts = "../elsewhere"',
        'evidence = "/tmp"',
        'pythonpath = ["."  , ".."]',
        "contracts = 3",
        'subjects = {"F-A-1" = "run.toml"}',
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, settings: str, snapshot: SnapshotAssertion) -> None:
    """Folders outside the project are refused, and a subject without a kind or a module."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.harness]\n{settings}\n", encoding="utf-8")
    with pytest.raises(ProjectError) as error:
        Project.find(tmp_path)
    assert str(error.value).replace(str(tmp_path), "PROJECT") == snapshot


def test_a_file_that_is_no_toml(tmp_path: Path) -> None:
    """The error names it."""
    (tmp_path / "pyproject.toml").write_text("[tool.harness]\ncontracts = \n", encoding="utf-8")
    with pytest.raises(ProjectError, match=r"pyproject\.toml"):
        Project.find(tmp_path)


def test_a_folder_that_is_linked_outside(tmp_path: Path) -> None:
    """A link does not lead the harness out of the project."""
    (tmp_path / "outside").mkdir()
    root = write_project(tmp_path / "project")
    (root / "linked").symlink_to(tmp_path / "outside")
    (root / "pyproject.toml").write_text('[tool.harness]\nevidence = "linked"\n', encoding="utf-8")
    with pytest.raises(ProjectError, match=r"tool\.harness\.evidence .*'linked'"):
        Project.find(root)


def test_harness_that_is_no_table(tmp_path: Path) -> None:
    """`tool.harness` must be a table."""
    (tmp_path / "pyproject.toml").write_text("[tool]\nharness = 1\n", encoding="utf-8")
    with pytest.raises(ProjectError, match=r"tool\.harness\b"):
        Project.find(tmp_path)


def test_schemas_are_no_contracts(project: Project) -> None:
    """The folder of schemas inside contracts/ has no contracts. Files are sorted by name."""
    other = write_contract(project.root, document(id="F-DEMO-AAA-001"))
    (project.contracts / "schema").mkdir()
    (project.contracts / "schema" / "contract.schema.json").write_text("{}", encoding="utf-8")
    assert [other, other.parent.with_name(IDENTIFIER) / "contract.json"] == project.files()


def test_a_claim_is_found_by_its_id(project: Project) -> None:
    assert project.contract(IDENTIFIER).path == project.contracts / "demo" / IDENTIFIER / "contract.json"


def test_a_claim_that_is_not_there(project: Project) -> None:
    """The error suggests the nearest one."""
    with pytest.raises(ProjectError, match=f"did you mean {IDENTIFIER}"):
        project.contract("F-DEMO-SROT-001")


def test_one_claim_has_one_contract(project: Project) -> None:
    """Two files with one id are refused."""
    twin = project.contracts / "other" / IDENTIFIER / "contract.json"
    put(twin, (project.contracts / "demo" / IDENTIFIER / "contract.json").read_text())
    with pytest.raises(ProjectError, match="has 2 contracts"):
        project.contract(IDENTIFIER)
    contracts, refused = project.load_all()
    pointers = [problem.pointer for error in refused for problem in error.problems]
    expected = ([IDENTIFIER], ["/id"])
    assert expected == ([contract.id for contract in contracts], pointers)


def test_a_refused_contract_does_not_hide_the_others(project: Project) -> None:
    """Loading all of them returns the sound and the refused ones."""
    broken = write_contract(project.root, "{", name="F-DEMO-BROKEN-001")
    contracts, refused = project.load_all()
    assert ([IDENTIFIER], [broken]) == ([contract.id for contract in contracts], [error.path for error in refused])
    with pytest.raises(ContractError):
        project.contract("F-DEMO-BROKEN-001")


def test_a_folder_that_cannot_be_opened_hides_no_other(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of two folders it is, the contract in the other one is found."""
    write_contract(project.root, document(id="F-DEMO-AAA-001"))
    for name in ("a", "b"):
        put(project.contracts / name / "contract.json", "")
    scandir, closed = os.scandir, list[str]()

    def opened(path: str | Path) -> Any:
        if Path(path).name in "ab" and not closed:
            closed.append(str(path))
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", opened)
    found = {path.parent.name for path in project.files()}
    assert closed
    assert {"F-DEMO-AAA-001", IDENTIFIER} <= found
    assert len(found & {"a", "b"}) == 1


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of claims that a distribution brings: one of its own, and one with an id of the project's."""
    root = write_project(tmp_path / "site" / "harness_claims" / "theirs", document(id="F-DEMO-THEIRS-001"), document())
    (root / "pyproject.toml").unlink()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    return root.resolve()


def test_installed_claims_are_known_beside_the_project_s(project: Project, installed: Path) -> None:
    """The project's own contract replaces an installed one.

    The code of an installed claim is found beside its contract.
    """
    theirs = installed / "contracts/demo/F-DEMO-THEIRS-001/contract.json"
    own = project.contracts / "demo" / IDENTIFIER / "contract.json"
    assert project.known() == [own, theirs]
    assert project.search_of(None) == project.search_of(own) == project.search
    assert project.search_of(theirs) == (installed,)
    assert (project.others_of(own), project.others_of(theirs)) == ((), project.search)
    source = "falsifiers/demo/sorting.py"
    for file, name in ((project.root / source, source), (installed / source, f"harness_claims/theirs/{source}")):
        assert (project.name_of(file), project.named(name)) == (name, file)
    assert project.named("harness_claims/nobody/x.py") == project.root / "harness_claims/nobody/x.py"
    for name in ("/etc/passwd", "a/../../b"):
        with pytest.raises(ValueError, match="leads out"):
            project.named(name)
    assert project.contract("F-DEMO-THEIRS-001").path == theirs


def test_within_installed_claims_none_is_known_twice(installed: Path) -> None:
    (installed / "pyproject.toml").write_text("[tool.harness]\n")
    project = Project.find(installed)
    assert project.known() == project.files()


@pytest.mark.parametrize("mark", _MARKS)
def test_with_installed_claims_a_repository_needs_no_settings(tmp_path: Path, installed: Path, mark: str) -> None:
    """The project is the nearest folder with the mark of a repository, from any folder inside."""
    inside = tmp_path / "repository" / "a" / "b"
    inside.mkdir(parents=True)
    assert Project.around(inside) is None
    (tmp_path / "repository" / mark).touch()
    found = Project.around(inside)
    assert found is not None
    root = tmp_path / "repository"
    assert (found.root, found.contracts, found.evidence) == (root, root / "contracts", root / "evidence")
    assert (found.search, found.mentions, found.ignored) == ((root,), Mentions(), {})
    assert [path.parent.name for path in found.known()] == [IDENTIFIER, "F-DEMO-THEIRS-001"]


def test_without_installed_claims_a_repository_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    (tmp_path / ".git").mkdir()
    assert Project.around(tmp_path) is None


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ("", (Mentions(), {})),
        ("mentions = {}\nlint = {}", (Mentions(), {})),
        ('mentions = {pattern = "A-[0-9]"}', (Mentions("A-[0-9]"), {})),
        ('mentions = {exclude = ["a", "b"]}', (Mentions(exclude=("a", "b")), {})),
        ('mentions = {pattern = "B", exclude = []}', (Mentions("B"), {})),
        ('lint = {ignore = {a = ["F-1", "F-2"], b = []}}', (Mentions(), {"a": ("F-1", "F-2"), "b": ()})),
        ("mentions = 1", "tool.harness.mentions"),
        ("mentions = {other = 1}", "tool.harness.mentions"),
        ('mentions = {exclude = "a"}', "tool.harness.mentions.exclude"),
        ("mentions = {exclude = [1]}", "tool.harness.mentions.exclude"),
        ('mentions = {pattern = "("}', "tool.harness.mentions.pattern"),
        ("mentions = {pattern = 1}", "tool.harness.mentions.pattern"),
        ("lint = 1", "tool.harness.lint"),
        ("lint = {other = {}}", "tool.harness.lint"),
        ("lint = {ignore = []}", "tool.harness.lint"),
        ("lint = {ignore = {a = 1}}", "tool.harness.lint"),
        ("lint = {ignore = {a = [1]}}", "tool.harness.lint"),
    ],
)
def test_settings_of_mentions_and_lint(tmp_path: Path, settings: str, found: Any) -> None:
    """A setting that is wrong is named."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.harness]\n{settings}\n")
    if isinstance(found, str):
        with pytest.raises(ProjectError) as refused:
            Project.find(tmp_path)
        assert str(refused.value).startswith(f"{tmp_path / 'pyproject.toml'}: {found} ")
    else:
        project = Project.find(tmp_path)
        assert (project.mentions, project.ignored) == found


@pytest.mark.parametrize("text", ["tool = 1", "[tool]\nharness = 1", "\xff"])
def test_settings_that_are_no_table(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ProjectError):
        Project.find(tmp_path)


def test_a_claim_unlike_any_other_has_no_suggestion(project: Project) -> None:
    """There is no suggestion if no id is near. The case of letters does not matter."""
    with pytest.raises(ProjectError) as refused:
        project.contract("quite something else")
    assert str(refused.value) == (
        f"no claim 'quite something else' under {project.contracts}; `harness list` shows them"
    )
    with pytest.raises(ProjectError, match=f"did you mean {IDENTIFIER}[?]$"):
        project.contract(IDENTIFIER.lower())


MODULE = """
from __future__ import annotations
import os, numpy as np
from typing import TYPE_CHECKING
from .near import helper
from data.tables import ROWS
if TYPE_CHECKING:
    import pandas
else:
    import polars
try:
    from torch import nn
except ImportError:
    nn = None
class Late:
    import scipy
    def run(self):
        import jax
"""


def test_what_an_import_runs(tmp_path: Path) -> None:
    """Imports in functions and for type checkers do not count.

    Modules of the project and of Python do not count either.
    """
    (tmp_path / "toy").mkdir()
    (tmp_path / "data").mkdir()  # a package without __init__.py
    (tmp_path / "toy" / "__init__.py").write_text("import attrs\n")
    (tmp_path / "toy" / "near.py").write_text("from toy.broken import thing\nfrom transformers import Trainer\n")
    (tmp_path / "toy" / "broken.py").write_text("import (\n")
    (tmp_path / "toy" / "claim.py").write_text(MODULE)
    assert imported_libraries(["toy.claim:falsify", "toy.claim:Other", "gone.away:x"], (tmp_path,)) == {
        "attrs", "gone", "gone.away", "numpy", "polars", "scipy", "torch", "torch.nn", "transformers",
        "transformers.Trainer",
    }  # fmt: skip


def test_folders_with_contracts_are_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are in the order of `sys.path` and then by name, each once. The empty entry is not the current folder."""
    for name in ("late/harness_claims/a", "early/harness_claims/z", "early/harness_claims/b", "harness_claims/here"):
        (tmp_path / name / "contracts").mkdir(parents=True)
    (tmp_path / "early/harness_claims/none").mkdir()
    (tmp_path / "early/harness_claims/file").touch()
    monkeypatch.chdir(tmp_path)
    path = ["", tmp_path / "missing", tmp_path / "early", tmp_path / "late", tmp_path / "early"]
    monkeypatch.setattr(sys, "path", [str(entry) if entry else "" for entry in path])
    early = tmp_path / "early/harness_claims"
    roots = (early / "b", early / "z", tmp_path / "late/harness_claims/a")
    assert claims_roots() == roots
    for root in roots:
        assert root_of(root / "contracts" / "F-A-001" / "contract.json") == root
    assert root_of(early / "none" / "contracts") is None
    assert root_of(tmp_path) is None
    monkeypatch.setattr(sys, "path", [])
    assert claims_roots() == ()


def test_a_file_that_is_missing_here_is_the_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If both folders have a file, the one of the current folder is taken."""
    root, name = tmp_path / "site/harness_claims/a", Path("trainers/some.toml")
    (root / "contracts").mkdir(parents=True)
    (root / name).parent.mkdir()
    (root / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert or_installed(name) == root / name
    assert or_installed(Path("trainers/another.toml")) == Path("trainers/another.toml")
    name.parent.mkdir()
    name.touch()
    assert or_installed(name) == name
