"""`harness lint` from outside: what it prints, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.base.vocabulary import ExitStatus
from harness.cli.lint import command
from harness.contract.project import Project
from tests.contracts import IDENTIFIER, document, write_contract


@pytest.fixture
def inside(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project, and the current folder in it."""
    monkeypatch.chdir(project.root)
    return project


def lint(*arguments: str) -> tuple[ExitStatus, list[str]]:
    """The exit status and the lines printed."""
    result = CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
    return result.return_value, result.output.splitlines()


def test_a_sound_project(inside: Project) -> None:
    """All of the project's contracts are counted."""
    expected = (ExitStatus.PASS, ["1 contract: 1 sound, 0 refused, 0 with warnings"])
    assert expected == lint()


def test_a_warning_refuses_nothing(inside: Project) -> None:
    """A contract with a warning is sound, and is counted as having one."""
    path = write_contract(inside.root, document(target=...))
    status, lines = lint()
    expected = [
        f"{path}: warning: /: the claim names no hardware, so it is never DISCHARGED",
        "    add 'target' [target-absent]",
        "1 contract: 1 sound, 0 refused, 1 with warnings",
    ]
    assert (ExitStatus.PASS, expected) == (status, lines)


def test_a_contract_that_cannot_be_satisfied(inside: Project) -> None:
    """An error is printed with its place, its remedy and the example, and refuses the contract."""
    rule = {"id": "impossible", "rule": "self.smallest > self.largest", "message": "never"}
    path = write_contract(inside.root, document(rules=[*document()["rules"], rule]))
    status, lines = lint()
    assert status is ExitStatus.REFUSED
    assert lines[0].startswith(f"{path}: error: /rules/2/rule: no observation satisfies the contract (full)")
    assert lines[1].endswith("[contract-unsatisfiable]")
    assert {"given", "returned", "smallest", "largest", "values"} == {
        *json.loads(lines[2].removeprefix("    example: "))
    }
    assert lines[-1] == "1 contract: 0 sound, 1 refused, 0 with warnings"


def test_a_contract_that_does_not_load(inside: Project) -> None:
    """What the loader refuses is printed in the same form, beside the contracts that load."""
    broken = write_contract(inside.root, document(id="F-DEMO-BROKEN-001", titel="x"))
    expected = [
        f"{broken}: error: /titel: unknown key 'titel'",
        "    did you mean 'title'? [refused]",
        "2 contracts: 1 sound, 1 refused, 0 with warnings",
    ]
    assert (ExitStatus.REFUSED, expected) == lint()


def test_paths(inside: Project) -> None:
    """Files and folders may be named, a file twice counts once, and the others are left alone."""
    broken = write_contract(inside.root, "{", name="F-DEMO-BROKEN-001")
    sound = broken.with_name(f"{IDENTIFIER}.json")
    assert lint(str(sound), f"contracts/demo/{sound.name}")[0] is ExitStatus.PASS
    assert lint(str(sound))[1] == ["1 contract: 1 sound, 0 refused, 0 with warnings"]
    assert lint("contracts/demo")[0] is ExitStatus.REFUSED


def test_nothing_to_lint(inside: Project, tmp_path: Path) -> None:
    """Where there is no contract nothing was measured, and the exit status says so."""
    empty = tmp_path / "empty"
    empty.mkdir()
    expected = (ExitStatus.NOT_MEASURED, ["0 contracts: 0 sound, 0 refused, 0 with warnings"])
    assert expected == lint(str(empty))


def test_json(inside: Project) -> None:
    """For machines every report has its file, its state and its findings."""
    path = write_contract(inside.root, document(target=...))
    status, lines = lint("--json")
    (report,) = json.loads("\n".join(lines))
    assert (ExitStatus.PASS, str(path), "warnings") == (status, report["file"], report["state"])
    (finding,) = report["findings"]
    assert {"rule": "target-absent", "severity": "warning"}.items() <= finding.items()
