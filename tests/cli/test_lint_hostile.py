"""`harness lint` and other commands, with contracts that were written to stop them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any

import psutil
import pytest

from harness.base.vocabulary import ExitStatus
from harness.contract.project import Project
from harness.machine.limited_process import Limits
from tests.cli.harness_command import COMMAND, environment
from tests.cli.test_lint import inside as inside
from tests.cli.test_lint import reports
from tests.contracts import IDENTIFIER, document, write_contract


def lists(count: int) -> dict[str, Any]:
    """Two lists of at least so many numbers."""
    numbers = {"type": "array", "minItems": count, "items": {"type": "number"}, "x-source": "a test"}
    return {"a": numbers, "b": numbers}


ENDLESS = lists(1000)
"""Judging one observation takes less than a second, but lint judges thousands."""


SLOW = "self.a.all(x, self.b.all(y, y < x + 1e300))"


def contract(rule: str = "", **properties: Any) -> dict[str, Any]:
    """The valid contract with more measurements and one more rule."""
    content = document()
    content["observation"]["properties"].update(properties)
    if rule:
        content["rules"].append({"id": "slow", "rule": rule, "message": "too slow", "source": "a test"})
    return content


@pytest.mark.parametrize(
    "items",
    [
        {"type": "number"},
        {"type": "integer", "minimum": 7, "x-source": "a test"},
        {"type": "integer", "maximum": 0, "multipleOf": 3, "x-source": "a test"},
        {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "x-source": "a test", "x-unit": "ratio"},
        {"type": "string", "minLength": 5, "x-source": "a test"},
        {"type": "array", "minItems": 2, "items": {"type": "integer"}, "x-source": "a test"},
        {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "loss": {"type": "number"}}},
    ],
    ids=json.dumps,
)
def test_unique_lists_are_found(inside: Project, monkeypatch: pytest.MonkeyPatch, items: dict[str, Any]) -> None:
    """A list of many distinct items is possible, and lint finds one quickly."""
    unique = {"type": "array", "uniqueItems": True, "minItems": 100, "items": items, "x-source": "a test"}
    monkeypatch.setattr("harness.cli.lint.LIMITS", Limits(seconds=20.0))
    write_contract(inside.root, contract(more=unique))
    status, ((_, state, findings),) = reports()
    assert (status, state) == (ExitStatus.PASS, "sound"), findings


def test_a_list_of_more_different_items_than_there_are_is_unsatisfiable(inside: Project) -> None:
    """There are only two booleans, so three different ones are impossible."""
    unique = {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"type": "boolean"}, "x-source": "a test"}
    write_contract(inside.root, contract(more=unique))
    _, ((_, state, findings),) = reports()
    assert state == "unsound"
    assert ("error", "contract-unsatisfiable") in {(severity, rule) for severity, rule, _ in findings}


def test_a_shape_that_cannot_be_drawn_is_undecided(inside: Project) -> None:
    """Hypothesis cannot draw lists nested so deeply. No observation was found, so the contract is undecided."""
    nested: dict[str, Any] = {"type": "number"}
    for _ in range(45):
        nested = {"type": "array", "minItems": 1, "items": nested}
    write_contract(inside.root, contract(deep=nested))
    assert reports() == (ExitStatus.NOT_MEASURED, [(IDENTIFIER, "undecided", [("warning", "undecided", "")])])


def test_beyond_the_budget_a_contract_is_undecided(inside: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract is neither sound nor wrong: exit status 3. The other checks of the contract still run."""
    monkeypatch.setattr("harness.cli.lint.LIMITS", Limits(seconds=2.0, elapsed=4.0, memory_bytes=256 << 20))
    write_contract(inside.root, contract(SLOW, **ENDLESS))
    status, ((_, state, findings),) = reports()
    assert (status, state, findings) == (ExitStatus.NOT_MEASURED, "undecided", [("warning", "undecided", "")])


def test_ctrl_c_ends_lint(inside: Project) -> None:
    """Ctrl-C works while a contract is examined in its own process, and no process is left."""
    write_contract(inside.root, contract(SLOW, **ENDLESS))
    process = subprocess.Popen(
        [*COMMAND, "lint"], cwd=inside.root, env=environment(inside.root), stderr=subprocess.PIPE, process_group=0
    )
    while not psutil.Process(process.pid).children():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == ExitStatus.INTERRUPTED
    assert b"Traceback" not in said
