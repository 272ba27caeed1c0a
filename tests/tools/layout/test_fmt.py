"""`harness fmt` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.base.vocabulary import ExitStatus
from harness.contract import ContractError
from harness.contract.project import Project
from tests.cli.harness_command import harness
from tests.contracts import IDENTIFIER, document, put, write_project


def test_contracts_are_laid_out_once(tmp_path: Path) -> None:
    """--check changes nothing. A second run changes nothing either."""
    write_project(tmp_path)
    path = tmp_path / "contracts" / "demo" / IDENTIFIER / "contract.json"
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
    path = tmp_path / "contracts" / "demo" / IDENTIFIER / "contract.json"
    path.write_text('{"id": 1, "id": 2}')
    done = harness(tmp_path, "fmt")
    assert done.returncode == ExitStatus.REFUSED
    assert str(path) in done.stderr


def test_a_claim_without_a_folder_gets_one(tmp_path: Path) -> None:
    """Until then its contract is refused. Its digest stays, so no evidence becomes stale."""
    write_project(tmp_path)
    family = tmp_path / "contracts" / "demo"
    place = family / IDENTIFIER / "contract.json"
    assert harness(tmp_path, "fmt").returncode == ExitStatus.PASS
    content, digest = place.read_bytes(), Project.find(tmp_path).contract(IDENTIFIER).digest
    place.unlink()
    place.parent.rmdir()
    old = put(family / f"{IDENTIFIER}.json", content.decode().replace("../../schema", "../schema"))
    put(family / f"{IDENTIFIER}.md", "Why three items.\n")
    put(family / "full.planting.json", "{}")
    with pytest.raises(ContractError) as refused:
        Project.find(tmp_path).contract(IDENTIFIER)
    assert [problem.remedy for problem in refused.value.problems] == [
        f"harness fmt moves it to {IDENTIFIER}/contract.json"
    ]
    assert harness(tmp_path, "fmt", "--check").returncode == ExitStatus.FAIL
    assert old.exists()
    assert harness(tmp_path, "fmt").returncode == ExitStatus.PASS
    assert sorted(path.name for path in family.iterdir()) == [IDENTIFIER]
    assert place.read_bytes() == content
    contract = Project.find(tmp_path).contract(IDENTIFIER)
    assert (contract.digest, contract.notes) == (digest, "Why three items.\n")
    assert (tmp_path / "evidence" / "planting" / "demo-full.json").read_text() == "{}"
