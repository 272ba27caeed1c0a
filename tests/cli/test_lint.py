"""`harness lint`: its output and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from harness.base.vocabulary import ExitStatus
from harness.cli.lint import command
from harness.contract.project import Project
from tests.contracts import IDENTIFIER, document, write_contract


@pytest.fixture
def inside(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Make a project the current folder."""
    monkeypatch.chdir(project.root)
    return project


def lint(*arguments: str) -> tuple[ExitStatus, list[str]]:
    """The exit status and the lines printed."""
    result = CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
    return result.return_value, result.output.splitlines()


def reports(*arguments: str) -> tuple[ExitStatus, list[tuple[str, str, list[tuple[str, str, str]]]]]:
    """The exit status; the name, the state and the findings of each file: severity, rule and place."""
    status, lines = lint("--json", *arguments)
    found = json.loads("\n".join(lines))["contracts"]
    named = ("severity", "rule", "pointer")
    return status, [
        (
            Path(contract["file"]).parent.name,
            contract["state"],
            [tuple(finding[name] for name in named) for finding in contract["findings"]],
        )
        for contract in found
    ]


def test_a_sound_project(inside: Project) -> None:
    """All contracts of the project are counted."""
    assert reports() == (ExitStatus.PASS, [(IDENTIFIER, "sound", [])])


UNSATISFIABLE = [*document()["rules"], {"id": "never", "rule": "self.smallest > self.largest", "message": "never"}]


def test_a_contract_that_cannot_be_satisfied(inside: Project) -> None:
    """An error refuses the contract, and shows the nearest measurements."""
    write_contract(inside.root, document(rules=UNSATISFIABLE))
    expected = [(IDENTIFIER, "unsound", [("error", "contract-unsatisfiable", "/rules/2/rule")])]
    assert (ExitStatus.REFUSED, expected) == reports()
    example = json.loads("".join(lint("--json")[1]))["contracts"][0]["findings"][0]["example"]
    assert {"given", "returned", "smallest", "largest", "values"} == {*example}


def test_the_text(inside: Project, snapshot: SnapshotAssertion) -> None:
    """Each finding has its place, its remedy and its example. A path is relative to the current folder, if below it."""
    write_contract(inside.root, document(target=...))
    write_contract(inside.root, document(id="F-DEMO-BROKEN-001", titel="x"))
    write_contract(inside.root, document(id="F-DEMO-NEVER-001", rules=UNSATISFIABLE))
    status, lines = lint()
    assert status is ExitStatus.REFUSED
    assert "\n".join(lines) == snapshot


def test_equivalent_defects(inside: Project) -> None:
    """A file that `harness plant` refuses is an error, and an entry without a source line is a warning."""
    (place,) = inside.files()
    entry = {
        "file": "falsifiers/demo/sorting.py",
        "before": "self.setting = setting",
        "after": "pass",
        "reason": "x" * 10,
    }
    beside = place.with_name("equivalent.json")
    entries = [{**entry, "file": "falsifiers/demo/gone.py"}, {**entry, "before": "self.setting = other"}, entry]
    beside.write_text(json.dumps({"id": IDENTIFIER, "equivalent": entries}))
    warning = ("warning", "equivalent-unmatched", "")
    assert reports() == (ExitStatus.PASS, [(IDENTIFIER, "warnings", [warning, warning])])
    assert reports(str(beside)) == reports(str(place)), "a file of the folder stands for its contract"
    beside.write_text(json.dumps({"id": IDENTIFIER, "equivalent": [{**entry, "line": 3}]}))
    assert reports() == (
        ExitStatus.REFUSED,
        [(IDENTIFIER, "unsound", [("error", "equivalents-refused", "/equivalent/0/line")])],
    )


def test_paths(inside: Project) -> None:
    """Files and folders may be named. A file that is named twice counts once; other files are left alone."""
    broken = write_contract(inside.root, "{", name="F-DEMO-BROKEN-001")
    sound = broken.parent.with_name(IDENTIFIER) / "contract.json"
    assert lint(str(sound), f"contracts/demo/{IDENTIFIER}/contract.json")[0] is ExitStatus.PASS
    assert len(reports(str(sound), f"contracts/demo/{IDENTIFIER}/contract.json")[1]) == 1
    assert lint("contracts/demo")[0] is ExitStatus.REFUSED


def test_nothing_to_lint(inside: Project, tmp_path: Path) -> None:
    """Without a contract, the exit status says that nothing was checked."""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert reports(str(empty)) == (ExitStatus.NOT_MEASURED, [])
