"""Patches of mutants: where they fit, what they change, and what is refused."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.contract import ContractError
from harness.contract.entry_point import resolve_own
from harness.contract.loader import load
from harness.contract.patch import Patch, PatchError, patched
from harness.contract.project_importer import install, plant
from harness.lint.patches import about_patches
from tests.contracts import document, write_contract, write_project

SOURCE = '''"""Sums."""

LIMIT = 3


class Sum:
    @property
    def name(self):
        return "sum"

    def of(self, values):
        total = 0
        for value in values:
            if value > LIMIT:
                total += value
                total += 0
        return total


def of(values):
    total = 0
    return total
'''


def changed(within: str, before: str, after: str) -> str:
    return Patch("sums", within, before, after).applied(SOURCE)


def test_a_text_is_changed_within_its_function_alone() -> None:
    """The same text stands in two functions."""
    source = changed("Sum.of", "total = 0", "total = 1")
    assert source == SOURCE.replace("        total = 0", "        total = 1")


def test_later_lines_are_indented_like_the_first_one() -> None:
    """A patch does not say how deep the code is nested."""
    source = changed("Sum.of", "total += value\ntotal += 0", "if value:\n    total -= value")
    assert "            if value > LIMIT:\n                if value:\n                    total -= value\n" in source
    source = changed("Sum.of", "if value > LIMIT:\n    total += value\n    total += 0", "total += value")
    assert "        for value in values:\n            total += value\n        return total\n" in source


def test_a_decorator_and_the_module_itself_can_change() -> None:
    """A definition begins with its decorators. Without a name, the whole module is searched."""
    assert "@staticmethod\n    def name" in changed("Sum.name", "@property", "@staticmethod")
    assert "LIMIT = 4\n" in changed("", "LIMIT = 3", "LIMIT = 4")


def test_a_statement_above_the_changed_line_can_grow() -> None:
    """An `else` belongs to the `if` above it."""
    source = "if LIMIT:\n    total = 1\ntotal = 2\n"
    patch = Patch("sums", "", "total = 2", "else:\n    total = 3\ntotal = 2")
    assert patch.applied(source) == "if LIMIT:\n    total = 1\nelse:\n    total = 3\ntotal = 2\n"


def test_patches_follow_each_other() -> None:
    """A later patch sees what an earlier one has written."""
    steps = [Patch("sums", "of", "total = 0", "total = 1"), Patch("sums", "of", "total = 1", "total = 2")]
    assert patched(SOURCE, steps).endswith("def of(values):\n    total = 2\n    return total\n")


@pytest.mark.parametrize(
    ("within", "before", "after"),
    [
        ("Sum.of", "absent", "x"),
        ("", "total = 0", "total = 1"),
        ("Sum.absent", "total = 0", "total = 1"),
        ("Sum.of.deeper", "total = 0", "total = 1"),
        ("Sum.of", "total = 0", "total = ("),
        ("Sum.of", "total = 0", "total = 0  # nothing else"),
        ("of", "total = 0\n    return total", "pass"),
    ],
    ids=["absent", "twice", "no such method", "no such function", "no Python", "no change", "indentation"],
)
def test_what_does_not_fit_is_refused(within: str, before: str, after: str) -> None:
    """A patch that fits nothing, or several places, or changes nothing, would make a mutant that is none."""
    with pytest.raises(PatchError):
        changed(within, before, after)


def test_lines_end_where_python_ends_them() -> None:
    """A form feed and a line separator in a text end no line of Python."""
    source = 'A = "\u2028\x0c"\n\n\ndef f():\n    return 1\n'
    assert Patch("m", "f", "return 1", "return 2").applied(source) == source.replace("return 1", "return 2")


@pytest.fixture
def importer() -> Iterator[None]:
    finders, path, modules = sys.meta_path[:], sys.path[:], dict(sys.modules)
    yield
    plant(())
    sys.meta_path[:], sys.path[:] = finders, path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def test_a_patch_reaches_every_module_that_imports_the_patched_one(tmp_path: Path, importer: None) -> None:
    """Names that were imported before the patch are bound anew. Without patches, the code is as it was."""
    (tmp_path / "patched_sums.py").write_text(SOURCE)
    (tmp_path / "patched_user.py").write_text(
        "from patched_sums import of, LIMIT\n\n\ndef used():\n    return of([]), LIMIT\n"
    )
    install([tmp_path])
    assert resolve_own("patched_user:used")() == (0, 3)
    plant([Patch("patched_sums", "of", "total = 0", "total = 7"), Patch("patched_sums", "", "LIMIT = 3", "LIMIT = 4")])
    assert resolve_own("patched_user:used")() == (7, 4)
    assert "total = 7" in inspect.getsource(resolve_own("patched_sums:of"))  # what Triton compiles
    plant(())
    assert resolve_own("patched_user:used")() == (0, 3)


def written(root: Path, mutant: dict[str, Any]) -> Path:
    mutants = [{"id": "forgetful", "violates": ["nothing-lost"], "defect": "it forgets", **mutant}]
    write_project(root)
    return write_contract(root, document(mutants=mutants))


def test_a_contract_states_patches_of_its_subject(tmp_path: Path) -> None:
    """Subject and module are the contract's, unless the mutant names others."""
    patch = {"within": "Sorter.sort", "before": "return sorted(items)", "after": "return sorted(items)[1:]"}
    contract = load(written(tmp_path, {"patches": [patch]}), (tmp_path,))
    (mutant,) = contract.mutants
    assert (mutant.subject, mutant.patches[0].module) == (contract.subject, contract.subject.partition(":")[0])


def test_a_mutant_without_a_defect_is_refused(tmp_path: Path) -> None:
    """A mutant that states neither a subject nor a patch nor parameters is the subject."""
    with pytest.raises(ContractError) as refused:
        load(written(tmp_path, {}), (tmp_path,))
    assert [problem.pointer for problem in refused.value.problems] == ["/mutants/0/subject"]


@pytest.mark.parametrize(
    "patch",
    [
        {"within": "Sorter.sort", "before": "return items", "after": "return []"},
        {"module": "absent", "within": "", "before": "a", "after": "b"},
    ],
    ids=["absent text", "absent module"],
)
def test_lint_names_a_patch_that_does_not_fit(tmp_path: Path, patch: dict[str, str]) -> None:
    """The contract still loads: its subject can be judged while the sources change."""
    contract = load(written(tmp_path, {"patches": [patch]}), (tmp_path,))
    (finding,) = about_patches(contract, (tmp_path,))
    assert (finding.rule, finding.pointer) == ("patch-does-not-fit", "/mutants/0/patches/0")


def test_lint_warns_of_a_patch_that_changes_the_falsifier(tmp_path: Path) -> None:
    """The falsifier measures with a function that the patch changes, so the mutant would die of that."""
    path = written(
        tmp_path, {"patches": [{"module": "falsifiers.demo.rulers", "within": "size", "before": "1", "after": "2"}]}
    )
    (tmp_path / "falsifiers" / "demo" / "rulers.py").write_text("def size():\n    return 1\n")
    assert [about_patch.rule for about_patch in about_patches(load(path, (tmp_path,)), (tmp_path,))] == []
    falsifier = tmp_path / "falsifiers" / "demo" / "sorting.py"
    falsifier.write_text(f"from falsifiers.demo.rulers import size\n{falsifier.read_text()}")
    found = list(about_patches(load(path, (tmp_path,)), (tmp_path,)))
    assert [(finding.rule, finding.pointer) for finding in found] == [("patch-of-falsifier", "/mutants/0/patches/0")]
