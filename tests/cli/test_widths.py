"""Each command on terminals of 60 to 200 columns: no word is broken, and a line is too wide only for a single word."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from harness.cli import _group
from harness.machine import host
from harness.machine.installed import Tool
from harness.report.terminal.run_lines import Lines, Shown
from harness.tools.doctor import survey
from harness.tools.doctor.survey import Toolchain
from tests.cli.outputs import assert_follows_schema
from tests.contracts import document, healthy, write_project
from tests.evidence.factory import DEFECTIVE, sealed, tamper
from tests.report.terminal.test_progress import finished, story

CLAIM = "F-DEMO-SORT-001"
WIDTHS = (60, 80, 120, 200)
LONG = "Sorting keeps every item, also of lists that are long-winded, empty or full of equal items, on every machine"


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with evidence of every kind."""
    root = tmp_path_factory.mktemp("project")
    write_project(root, document(title=LONG), document(id="F-DEMO-OTHER-002", title=LONG))
    sealed(root, run="a", measurements=healthy(largest=3.1))
    sealed(root, run="b", started="2026-11-21T20:15:03+00:00")
    sealed(root, run="c", measurements=healthy(returned=2))
    sealed(root, run="d", skipped=True)
    sealed(root, run="e", mutants={**DEFECTIVE, "forgets-one": {}})
    tamper(sealed(root, run="f"))
    (root / "contracts" / CLAIM / "contract.json").unlink()  # the factory's own, beside the project's
    return root


@pytest.fixture
def inside(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project as the current folder, on a machine without tools."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    absent = Tool("tool", reason="is not installed on this machine, so nothing is known about it")
    monkeypatch.setattr(survey, "survey", lambda: Toolchain(absent, absent, (absent,), (absent,), absent))
    machine = host.probe(project)
    monkeypatch.setattr(host, "probe", lambda *_: machine)
    return project


def printed(arguments: tuple[str, ...], width: int | None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the output of a command in this process. The width None stands for a pipe."""
    stream = io.StringIO() if width is None else Terminal()
    monkeypatch.setenv("COLUMNS", str(width or 80))
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", stream)
        patched.setattr("sys.stderr", io.StringIO())
        _group.main(list(arguments), prog_name="harness", standalone_mode=False)
    return stream.getvalue()


COMMANDS: list[tuple[str, ...]] = [
    ("list",),
    ("show", CLAIM),
    ("lint",),
    ("fmt", "--check"),
    ("doctor",),
    ("status",),
    ("status", "-v"),
    ("verify", "evidence"),
    ("verify", "evidence", "-v"),
    *((name, "--help") for name in _group.list_commands(click.Context(_group))),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_word_is_broken(arguments: tuple[str, ...], inside: Path, monkeypatch: Any) -> None:
    """Every word that a terminal shows is a word of the output in a pipe."""
    if arguments[-1] == "--help":
        words = None
    elif arguments == ("doctor",):  # it has headings and columns on a terminal only
        words = {*printed(arguments, None, monkeypatch).split(), "Machine", "GPUs", "Tools", "Claims"}
    else:
        words = set(printed(arguments, None, monkeypatch).split())
        assert words
    for width in WIDTHS:
        shown = printed(arguments, width, monkeypatch)
        check(shown, width, words)


def check(shown: str, width: int, words: set[str] | None) -> None:
    """Check the lines, without colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert plain.strip()
    for line in plain.splitlines():
        assert len(line) <= width or len(line.split()) == 1, line
    if words is not None:
        cut = {word for word in set(plain.split()) - words if not word.endswith("…") and f"{word}:" not in words}
        assert cut == set()


def test_a_run(tmp_path: Path) -> None:
    """The lines of a run of one claim and of several fit. `harness run` prints exactly these lines."""
    done = finished(tmp_path)
    runs: Iterator[list[Any]] = iter([story(done[0].record), [*done]])
    for told in runs:
        pipe = "\n".join(written(told, None))
        for width in WIDTHS:
            check("\n".join(written(told, width)), width, set(pipe.split()))


def written(told: list[Any], width: int | None) -> list[str]:
    """The lines of a run on a terminal of this width."""
    from harness.report.terminal.printing import wrapped
    from harness.running import events

    lines: list[str] = []
    take: Callable[[Any], None] = Lines(
        lambda line: lines.extend(wrapped(line[0], width)), Shown(verbose=True), lambda: width, clock=lambda: 0.0
    )
    records = [event for event in told if isinstance(event, events.ClaimFinished)]
    if not isinstance(told[0], events.RunStarted):
        take(events.RunStarted(tuple(record.record.id for record in records)))
        told = [*told, events.RunFinished(len(records), tuple(record.record for record in records), 1.0, False)]
    for event in told:
        take(event)
    return lines


@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("lint",),
        ("doctor",),
        ("status",),
        ("verify", "evidence"),
    ],
    ids=" ".join,
)
def test_json_follows_its_schema(arguments: tuple[str, ...], inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each document has a version, and the schema describes it."""
    text = printed((*arguments, "--json"), None, monkeypatch)
    assert_follows_schema(arguments[0], json.loads(text))


@pytest.mark.parametrize(
    ("variables", "colourful"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
@pytest.mark.parametrize("arguments", [("list",), ("status",), ("verify", "evidence"), ("doctor",)], ids=" ".join)
def test_colours(
    arguments: tuple[str, ...], variables: dict[str, str], colourful: bool, inside: Path, monkeypatch: Any
) -> None:
    """A pipe has colours only if FORCE_COLOR asks for them, and NO_COLOR wins."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in printed(arguments, None, monkeypatch)) is colourful
