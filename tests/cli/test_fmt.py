"""`harness fmt` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from harness.base.vocabulary import ExitStatus
from tests.cli.harness_command import harness
from tests.contracts import IDENTIFIER, document, write_project


def test_contracts_are_laid_out_once(tmp_path: Path) -> None:
    """--check changes nothing. A second run changes nothing either."""
    write_project(tmp_path)
    path = tmp_path / "contracts" / "demo" / f"{IDENTIFIER}.json"
    before = path.read_bytes()
    assert harness(tmp_path, "fmt", "--check").returncode == ExitStatus.FAIL
    assert path.read_bytes() == before
    assert harness(tmp_path, "fmt", str(path.parent)).returncode == ExitStatus.PASS
    assert path.read_bytes() != before
    assert json.loads(path.read_bytes()) == document()
    done = harness(tmp_path, "fmt", "--check")
    assert (done.returncode, done.stdout) == (ExitStatus.PASS, "")


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    write_project(tmp_path)
    path = tmp_path / "contracts" / "demo" / f"{IDENTIFIER}.json"
    path.write_text('{"id": 1, "id": 2}')
    done = harness(tmp_path, "fmt")
    assert done.returncode == ExitStatus.REFUSED
    assert str(path) in done.stderr
