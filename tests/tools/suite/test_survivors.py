"""Mutants of a toy package, with a strong suite, a weak one and a broken one."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from harness.authoring.faults import NotMeasured
from harness.tools.suite import copies, survivors
from harness.tools.suite.session import Suite
from harness.tools.suite.survivors import Score, try_mutants
from harness.tools.suite.weakened import HIDDEN

_CODE = """def is_far(near: bool):
    return not near


def fallback():
    return True
"""
_FAR = "    assert is_far(False) is True\n    assert is_far(True) is False\n"
_FALLBACK = "    assert fallback() is True\n"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no plugin of this environment, which saves most of a session's time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)


def _tried(root: Path, far: str, fallback: str, budget: float = 600.0, fault: str = "", most: int = 9) -> Score:
    pytest.importorskip("cosmic_ray", reason="the extra `mutation` is not installed")
    for file, text in {
        "src/toy/__init__.py": _CODE,
        "tests/test_toy.py": f"from toy import fallback, is_far\n\ndef test_far():\n{far}\n"
        f"def test_fallback():\n{fallback}",
    }.items():
        (root / file).parent.mkdir(parents=True)
        (root / file).write_text(text)
    suite = Suite(root, ["tests"], root / "runs", fault={"kind": fault, "function": ""})
    before = {file: file.read_bytes() for file in root.rglob("*.py")}
    try:
        work = root / "work"
        return try_mutants(suite, ["src/toy"], budget=budget, seed=0, workers=1, workspace=work, most=most)
    finally:
        assert {file: file.read_bytes() for file in before} == before


def test_a_strong_suite_kills_all(tmp_path: Path) -> None:
    """Every mutant is tried, in copies."""
    found = _tried(tmp_path, _FAR, _FALLBACK).measurements()
    assert {name: value for name, value in found.items() if value} == {"mutants_killed": 2}


def test_a_weak_suite_leaves_survivors(tmp_path: Path) -> None:
    """A test that executes a line without an assertion on it lets a mutant survive.

    A line of no test is not reached.
    """
    score = _tried(tmp_path, "    is_far(False)\n", "    pass\n")
    assert {name: value for name, value in score.measurements().items() if value} == {
        "mutants_survived": 1,
        "mutants_not_reached": 1,
        "survived_share": 1.0,
        "survivors": ["src/toy/__init__.py:2 ReplaceUnaryOperator_Delete_Not | - return not near | + return  near"],
    }


def test_a_suite_that_ends_with_0_whatever_fails(tmp_path: Path) -> None:
    """No mutant is killed, and no more mutants are tried than requested."""
    found = _tried(tmp_path, _FAR, _FALLBACK, fault=HIDDEN, most=1).measurements()
    assert (found["mutants_survived"], found["mutants_not_tried"], found["survived_share"]) == (1, 1, 1.0)


def test_a_suite_that_fails_without_a_mutant(tmp_path: Path) -> None:
    """The suite kills nothing, and the score is NOT_MEASURED."""
    with pytest.raises(NotMeasured, match=r"tests/test_toy\.py::test_fallback"):
        _tried(tmp_path, _FAR, "    assert False\n")


def test_the_budget_ends_it(tmp_path: Path) -> None:
    """Mutants that were not tried are counted. Without any, there is no score."""
    score = _tried(tmp_path, _FAR, "    pass\n", budget=0)
    fates = Counter(mutant.fate for mutant in score.mutants)
    assert fates.keys() == {"not tried", "not reached"}
    assert fates["not reached"] == 1
    with pytest.raises(NotMeasured):
        score.measurements()


def test_without_cosmic_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message names the remedy."""
    monkeypatch.setattr(survivors, "find_spec", lambda name: None)
    with pytest.raises(NotMeasured, match=r"pip install .*\[mutation\]"):
        try_mutants(Suite(tmp_path, [], tmp_path), ["x"], budget=1, seed=0, workers=1, workspace=tmp_path)


@pytest.mark.parametrize(("line", "lines"), [(1, range(1, 4)), (3, range(3, 6)), (4, range(3, 6)), (6, range(6, 7))])
def test_lines_of_a_statement(line: int, lines: range) -> None:
    """A statement over several lines is reached on any of them. A block is reached only until its body begins."""
    tree = ast.parse("@cached\ndef f(x,\n y=1):\n  if (x or\n    y):\n    return 1\n".replace("\n y", " y"))
    assert copies._statement(tree, line) == lines
