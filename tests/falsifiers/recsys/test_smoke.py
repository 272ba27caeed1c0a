"""The smoke test of the attention. Each of its defects stays green and asserts or covers less."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from falsifiers.recsys import smoke
from falsifiers.recsys.reference.smoke_tests import OwnSmokeTests
from falsifiers.recsys.smoke import _line_of_backward
from harness import NotMeasured, Setting
from harness.contract import Mutant
from harness.contract.entry_point import resolve
from harness.contract.project import Project
from harness.tools.suite.assertions import HELD, mark
from harness.tools.suite.ledger import Ledger
from tests.falsifiers.planted import planted

FILE = "test_hstu_smoke.py"
SETTING = Setting({}, "cpu", 0, Path(), Path())
PROJECT = Project.find(Path(__file__).parents[3])
CONTRACTS = [PROJECT.contract(f"F-HSTU-{name}-001") for name in ("ASSERT-COUNT", "COVERAGE")]
MUTANTS = {mutant.id: mutant for contract in CONTRACTS for mutant in contract.mutants}


def places(text: str) -> list[int]:
    """The lines of the assertions of a file, except the one in its helper."""
    tree = ast.parse(text)
    mark(tree, FILE)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return sorted(node.lineno for node in calls if node.func.id == HELD)


def test_what_the_smoke_test_asserts() -> None:
    """It asserts the output before the backward pass, and three gradients after it."""
    text = OwnSmokeTests(SETTING).files()[FILE]
    backward = _line_of_backward(text)
    assert [line < backward for line in places(text)] == [True, False, False, False]


def changed_by(mutant: Mutant) -> Mapping[str, str]:
    """The files with the defect."""
    with planted(mutant):
        return resolve(CONTRACTS[0].subject)(SETTING).files()


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_defect(mutant: Mutant) -> None:
    """The defect changes the file or pytest's settings, and the result is valid Python."""
    changed, own = changed_by(mutant), OwnSmokeTests(SETTING).files()
    assert changed != own
    assert changed.keys() == own.keys()
    ast.parse(changed[FILE])


@pytest.mark.parametrize("name", ["assertions-commented", "constant-assertions"])
def test_no_gradient_is_asserted(name: str) -> None:
    """Only the assertion on the output remains."""
    assert len(places(changed_by(MUTANTS[name])[FILE])) == 1


@pytest.mark.parametrize(("why", "broken"), [("", ("a.py",)), ("it does not fit", ()), ("it does not fit", ("a.py",))])
def test_a_test_that_fails_where_the_interpreter_does_not_work(
    monkeypatch: pytest.MonkeyPatch, why: str, broken: tuple[str, ...]
) -> None:
    """Then nothing is measured. A suite that fails although the interpreter works, or that does not fail, is judged."""
    monkeypatch.setattr(smoke, "misfit", lambda: why)
    ledger = Ledger({}, broken)
    suite: Any = SimpleNamespace(run=lambda: ledger)
    if why and broken:
        with pytest.raises(NotMeasured, match=why):
            smoke._run(suite)
    else:
        assert smoke._run(suite) is ledger
