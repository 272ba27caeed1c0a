"""`harness lint` and other commands, with contracts that were written to stop them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.base.beneath import Beneath
from harness.base.removal import remove
from harness.base.vocabulary import ExitStatus
from harness.contract.project import Project
from harness.machine.limited_process import Limits
from tests.cli.harness_command import COMMAND, environment, harness
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


def place_special(kind: str, path: Path) -> None:
    """Put a file that is not regular, or has no end, in place of a contract."""
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "itself":
            path.symlink_to(path.name)
        case "folder":
            path.mkdir()
        case "huge":
            with path.open("wb") as file:
                file.truncate(1 << 40)


@pytest.mark.parametrize("kind", ["pipe", "endless", "itself", "folder", "huge"])
def test_what_is_no_contract_file_blocks_nothing(inside: Project, kind: str) -> None:
    """A pipe, a device, a link to itself, a folder and a file of a terabyte are refused at once."""
    path = inside.contracts / "demo" / f"{IDENTIFIER}.json"
    (found,) = inside.contracts.rglob(f"{IDENTIFIER}.json")
    assert found == path or found.is_file()
    place_special(kind, found)
    assert reports() == (ExitStatus.REFUSED, [(IDENTIFIER, "refused", [("error", "refused", "")])])
    for command in (["list"], ["status"], ["show", IDENTIFIER], ["run", "--all"], ["fmt", "--check"]):
        done = harness(inside.root, *command, seconds=20)
        assert "Traceback" not in done.stderr, command
        assert done.returncode in (ExitStatus.REFUSED, ExitStatus.NOT_MEASURED, ExitStatus.PASS), (command, done.stderr)


@pytest.mark.parametrize("kind", ["pipe", "endless", "unary"])
def test_sources_of_entry_points_are_bounded(inside: Project, kind: str) -> None:
    """A source that is a pipe, or too deep for Python's parser, refuses the contract."""
    (found,) = inside.root.rglob("sorting.py")
    if kind == "unary":
        found.write_text(f"Sorter = Forgetful = falsify = {'-' * 90_000}1\n")
    else:
        place_special(kind, found)
    status, ((_, state, findings),) = reports()
    assert (status, state) == (ExitStatus.REFUSED, "refused")
    assert {place for _, _, place in findings} == {"/falsifier", "/subject", "/mutants/0/subject"}


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


@pytest.mark.parametrize(
    "rule",
    ["-" * 1900 + "self.smallest < 1.0", "- " * 900 + "self.smallest < 1.0", "self.values" + "[0]" * 600 + " < 1.0"],
    ids=["signs", "spaced signs", "indices"],
)
def test_deep_rules_are_refused(inside: Project, rule: str) -> None:
    """The loader refuses them, so no command evaluates them."""
    write_contract(inside.root, contract(rule))
    assert reports() == (ExitStatus.REFUSED, [(IDENTIFIER, "refused", [("error", "refused", "/rules/2/rule")])])


def test_a_shape_that_cannot_be_drawn_is_undecided(inside: Project) -> None:
    """Hypothesis cannot draw lists nested so deeply. No observation was found, so the contract is undecided."""
    nested: dict[str, Any] = {"type": "number"}
    for _ in range(45):
        nested = {"type": "array", "minItems": 1, "items": nested}
    write_contract(inside.root, contract(deep=nested))
    assert reports() == (ExitStatus.NOT_MEASURED, [(IDENTIFIER, "undecided", [("warning", "undecided", "")])])


LONG = {"type": "array", "minItems": 100_000, "items": {"type": "number"}, "x-source": "a test"}
HUGE = {**LONG, "items": LONG}


def test_beyond_the_budget_a_contract_is_undecided(inside: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract is neither sound nor wrong: exit status 3. The other checks of the contract still run."""
    monkeypatch.setattr("harness.cli.lint.LIMITS", Limits(seconds=2.0, elapsed=4.0, memory_bytes=256 << 20))
    write_contract(inside.root, contract(SLOW, **ENDLESS))
    status, ((_, state, findings),) = reports()
    assert (status, state, findings) == (ExitStatus.NOT_MEASURED, "undecided", [("warning", "undecided", "")])


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (contract(SLOW, **lists(20_000)), "/rules/2/rule"),
        (contract(more=HUGE), "/observation/properties/more/items/items/type"),
    ],
    ids=["nested macros", "billions of items"],
)
def test_what_is_slow_to_judge_is_refused(inside: Project, content: dict[str, Any], pointer: str) -> None:
    """Every command refuses it, so a run does not begin."""
    write_contract(inside.root, content)
    status, ((_, state, findings),) = reports()
    assert (status, state) == (ExitStatus.REFUSED, "refused")
    assert ("error", "refused", pointer) in findings


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


def test_folders_of_contracts_may_be_deep(inside: Project) -> None:
    """A thousand nested folders end no command, and the contract beside them is found."""
    here = os.getcwd()
    os.chdir(inside.contracts)
    try:
        for _ in range(1_000):
            os.mkdir("deeper")
            os.chdir("deeper")
    finally:
        os.chdir(here)
    try:
        assert [path.stem for path in inside.files()] == [IDENTIFIER]
    finally:
        assert remove(Beneath(inside.contracts, "deeper")) == []
