"""The output of a run has no text that GitHub Actions would execute."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report.terminal.workflow_commands import Escaping, annotate
from tests.cli.harness_command import environment
from tests.cli.harness_command import harness as _harness
from tests.cli.toy_claim import CLAIM
from tests.execution.projects import write_project

COMMAND = re.compile(r"(?m)^\s*::|##\[")
"""The texts that the runner of GitHub Actions executes."""


def written(*texts: str) -> str:
    """The output after these writes."""
    buffer = io.BytesIO()
    stream = Escaping(buffer, encoding="utf-8", newline="")
    for text in texts:
        assert stream.write(text) == len(text)
    stream.flush()
    return buffer.getvalue().decode()


@given(st.lists(st.text(alphabet=" \t:#[]a\n\r", max_size=6), max_size=6))
def test_no_command_is_written(texts: list[str]) -> None:
    """The text may be split into any writes."""
    once, pieces = written("".join(texts)), written(*texts)
    assert once == pieces
    assert not any(COMMAND.search(line) for line in re.split(r"[\r\n]", pieces))


def test_what_is_no_command_stays_as_it_is() -> None:
    """Only colons at the start of a line, and brackets after a number sign, are changed."""
    text = "a::b\n  x: [1, 2] # 3\nsorting.py::test\n"
    assert written(text) == text


@given(st.recursive(st.text(alphabet="#[:\n", max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_json_keeps_its_meaning(value: object) -> None:
    """Reports on standard output stay valid JSON."""
    for indent in (None, 2):
        assert json.loads(written(json.dumps(value, indent=indent))) == value


@pytest.mark.parametrize("arguments", [[], ["-v"], ["--json", "-"]], ids=str)
def test_the_exception_of_a_subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """The exception of a subject reaches the log and the annotation of the claim, but not as a command."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert environment(tmp_path)["GITHUB_ACTIONS"] == "true"
    write_project(tmp_path)
    module = tmp_path / "toy" / "sorting.py"
    text = 'raise ValueError("no\\\\n::error::forged\\\\n  ::stop-commands::x\\\\n##[error]forged")'
    module.write_text(module.read_text().replace('raise ValueError("cannot sort")', text.replace("\\\\n", "\\n")))
    done = _harness(tmp_path, "run", CLAIM, "-P", "how=raises", "--no-mutants", *arguments)
    said = done.stdout + done.stderr
    assert "forged" in said
    commands = [line for line in said.splitlines() if COMMAND.search(line)]
    assert [line.partition(" ")[0] for line in commands] == ["::error"], said
    assert commands[0].startswith(f"::error title=FAIL {CLAIM},file=contracts/{CLAIM}/contract.json,line=")
    assert not re.search(r"##\[", commands[0])


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=3), st.text(max_size=20))
def test_an_annotation_is_one_command_whatever_it_says(title: str, lines: list[str], file: str) -> None:
    """Its text can neither end the command nor add a property to it."""
    buffer = io.BytesIO()
    stream = Escaping(buffer, encoding="utf-8", newline="", errors="backslashreplace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", stream)
        annotate("error", title, lines, file, 7)
    (line,) = buffer.getvalue().decode().removesuffix("\n").splitlines()
    properties, _, _ = line.removeprefix("::error ").partition("::")
    names = [word.partition("=")[0] for word in properties.split(",")]
    assert names == (["title", "file", "line"] if file else ["title"])
    assert not COMMAND.search(line.removeprefix("::"))


def test_outside_of_actions_there_are_no_annotations(capsys: pytest.CaptureFixture[str]) -> None:
    annotate("error", "one", ["two"])
    assert capsys.readouterr() == ("", "")
