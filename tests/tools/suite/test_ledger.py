"""Ledgers: the lines of the plugin, what is kept, what a contract states, and what a run lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from harness.tools.suite import plugin
from harness.tools.suite.command import _entries, command
from harness.tools.suite.ledger import Ledger, lines_of, stated
from harness.tools.suite.session import read_ledger

SMOKE, REFUSAL = "t.py::test_smoke", "t.py::test_refusal"


def lines(**changed: Any) -> list[str]:
    """The lines of a session: a test with four cells, and one with two cells that are no product."""
    told: list[dict[str, Any]] = []
    cells = [(SMOKE, {"d": d, "c": c}) for d in ("32", "64") for c in ("0", "4")]
    cells += [(REFUSAL, {"d": "1", "c": "0"}), (REFUSAL, {"d": "2", "c": "4"})]
    for function, cell in cells:
        name = f"{function}[{'-'.join(cell.values())}]"
        told.append({"collected": name, "function": function, "cell": cell, "drawn": False, "python": True})
        ended = {"test": name, "outcome": "passed", "reason": "", "held": {"t.py:3:4": 2, "t.py:4:4": 1}}
        told.append({**ended, **changed.get(name, {})})
    told.append({"end": 0, "files": ["t.py"]})
    return [json.dumps(event) for event in told]


def test_lines_state_what_ran() -> None:
    """A product of values is one line, and other cells have one each. Reading the lines gives the cells again."""
    ledger = Ledger.read(lines())
    told = list(lines_of(ledger))
    assert told == [
        f"{REFUSAL}: 2 assertions, 3 checks; cell c=0, d=1",
        f"{REFUSAL}: 2 assertions, 3 checks; cell c=4, d=2",
        f"{SMOKE}: 2 assertions, 3 checks; d in 32, 64; c in 0, 4",
    ]
    assert not any(ledger.against(stated(told), exactly=True).measurements().values())
    assert stated(["f: 0 assertions"])["f"] == {"": (0, 0)}


@pytest.mark.parametrize(
    ("ended", "measurement"),
    [
        ({"outcome": "skipped", "reason": "slow"}, "skipped"),
        ({"outcome": "xfailed", "reason": "flaky"}, "expected_to_fail"),
        ({"held": {"t.py:3:4": 3}}, "fewer_assertions"),
        ({"held": {"t.py:3:4": 1, "t.py:4:4": 1}}, "fewer_checks"),
        ({"test": "another"}, "deselected"),
    ],
)
def test_what_a_run_lacks(ended: dict[str, Any], measurement: str) -> None:
    """One cell that differs is listed."""
    before, now = Ledger.read(lines()), Ledger.read(lines(**{f"{SMOKE}[32-4]": ended}))
    found = now.against(stated(lines_of(before))).measurements()
    assert {name: len(value) for name, value in found.items() if value} == {measurement: 1}
    assert not any(before.against(stated(lines_of(now))).measurements().values())


def test_cells_that_a_contract_does_not_state() -> None:
    """A contract states all cells. An earlier run does not forbid new ones."""
    found = Ledger.read(lines()).against(stated([f"{SMOKE}: 2 assertions; d in 32; c in 0, 4"]), exactly=True)
    assert found.unexpected == [f"{SMOKE} [c=0, d=64]", f"{SMOKE} [c=4, d=64]"]


def test_a_session_that_ends_early() -> None:
    """Such a session has no last line."""
    assert [len(Ledger.read(rows).broken) for rows in (lines()[:-1], lines())] == [1, 0]


def test_equal_values_under_several_ids() -> None:
    """Equal values under several ids are two cells."""
    cell = {"function": "f", "cell": {"d": "1"}, "drawn": False, "python": True}
    ledger = Ledger.read(json.dumps({"collected": name, **cell}) for name in ("f[a]", "f[b]"))
    assert sorted(ledger.functions["f"]) == ["d=1", "d=1 #2"]


def test_the_lower_count_is_kept() -> None:
    """If assertions hold a varying number of times, a later run need not reach the higher count."""
    more, fewer = Ledger.read(lines()), Ledger.read(lines(**{f"{SMOKE}[32-4]": {"held": {"a": 1, "b": 1}}}))
    kept = more.no_more_than(stated(lines_of(fewer)))
    assert [kept.functions[SMOKE][cell].held for cell in ("c=0, d=32", "c=4, d=32")] == [3, 2]


@pytest.mark.parametrize("line", ["tests/test_a.py::test_a", "test_a: many assertions", "test_a: 1 assertion; a = 3"])
def test_a_line_of_another_form(line: str) -> None:
    """A line of another form is refused."""
    with pytest.raises(ValueError, match="is not FUNCTION"):
        stated([line])


@pytest.mark.parametrize("value", ["x = 1\nassert x", "a\u2028b", "a\x0bb", ["plain"], "plain"])
def test_a_parameter_stays_on_its_line(value: object) -> None:
    """Otherwise a suite would lack cells of the ledger that it wrote itself."""
    text = plugin._text(value, "id")
    assert stated([f"f: 1 assertion, 1 check; cell x={text}"])["f"] == {f"x={text}": (1, 1)}
    assert text.splitlines() == [text]


def test_a_share_of_survivors_needs_mutants() -> None:
    """--most-survivors without --mutate is refused."""
    assert CliRunner().invoke(command, ["tests", "--most-survivors", "0.2"]).exit_code == 2


def test_each_entry_of_what_refutes_a_suite_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to twenty entries of a list are shown. Numbers and empty lists are not."""
    found = {"checks": 5, "skipped": [], "deaf": ["one"], "missing": [f"cell {number}" for number in range(23)]}
    observation = SimpleNamespace(measurements=found)
    monkeypatch.setattr("harness.tools.suite.command.Bundle", lambda path: SimpleNamespace(observation=observation))
    lines = [*_entries(Path("bundle"))]
    assert lines[:3] == ["deaf:", "  one", "missing:"]
    assert lines[3:23] == [f"  cell {number}" for number in range(20)]
    assert lines[23:] == ["  and 3 more, in bundle/observation.json"]


def sparse(path: Path) -> None:
    """Make a file of 10 GB that has no byte on the disk."""
    with path.open("wb") as file:
        file.truncate(10 << 30)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
    "10 GB of holes": sparse,
    "noise": lambda path: path.write_bytes(bytes(range(256)) + b"\n"),
    "nested without end": lambda path: path.write_text("[" * 100_000 + "\n"),
    "a key twice": lambda path: path.write_text('{"end": 1, "end": 1, "files": []}\n'),
    "no function": lambda path: path.write_text('{"collected": "a"}\n'),
    "a list as an id": lambda path: path.write_text('{"collected": ["a"]}\n'),
    "an end without files": lambda path: path.write_text('{"end": 1}\n'),
    "an object as an id": lambda path: path.write_text('{"test": {}}\n'),
}


def test_small_text_makes_no_large_memory(tmp_path: Path) -> None:
    """36 MB of empty objects would take 860 MB. The limit of memory is that of a process of its own."""
    (tmp_path / "ledger").write_text('{"end": 1, "files": [' + "{}," * 12_000_000 + "{}]}\n")
    code = (
        "import pathlib, resource, sys; from harness.tools.suite.session import read_ledger\n"
        "resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))\n"
        "try: read_ledger(pathlib.Path(sys.argv[1]), 0)\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "ledger"], capture_output=True, text=True)
    assert "36000026 characters" in done.stdout, done.stderr


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_a_ledger_that_no_session_wrote(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "ledger")
    with pytest.raises((OSError, ValueError)):
        read_ledger(tmp_path / "ledger", 0)
