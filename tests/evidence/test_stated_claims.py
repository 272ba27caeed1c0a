"""The claims of a project's contracts are remembered, and read again if a file changes on which they depend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.contract import ContractError
from harness.contract.project import Project
from harness.evidence.stated_claims import Stated, stated_claims


@pytest.fixture
def claims(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose contracts were looked up once."""
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    loaded, refused = project.load_all()
    assert stated_claims(project, project.files()) == ([Stated.of(one) for one in loaded], refused)
    return project


def test_unchanged_contracts_are_not_loaded(claims: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [Stated.of(one) for one in claims.load_all()[0]]
    monkeypatch.delattr(Project, "load")
    assert stated_claims(claims, claims.files()) == (expected, [])


def test_a_changed_contract_is_loaded(claims: Project) -> None:
    path = claims.files()[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), "title": "Another title"}))
    (changed, *_), _ = stated_claims(claims, claims.files())
    assert (changed.title, changed.digest) == ("Another title", claims.load(path).digest)


def test_a_contract_whose_module_lost_the_subject_is_refused(claims: Project) -> None:
    """The contract is refused, although its own file is the same."""
    contract = claims.load(claims.files()[0])
    module = claims.root / (contract.subject.partition(":")[0].replace(".", "/") + ".py")
    module.write_text("")
    _, refused = stated_claims(claims, claims.files())
    with pytest.raises(ContractError) as again:
        claims.load(contract.path)
    assert [error.problems for error in refused] == [again.value.problems]


@pytest.mark.parametrize("content", ["", "{", '{"loader": 1}', "[]"])
def test_a_damaged_cache_is_made_anew(claims: Project, tmp_path: Path, content: str) -> None:
    (file,) = (tmp_path / "cache").glob("contracts-*.json")
    whole = file.read_bytes()
    file.write_text(content)
    assert stated_claims(claims, claims.files())[1] == []
    assert file.read_bytes() == whole


def test_two_contracts_of_one_claim(claims: Project) -> None:
    path = claims.files()[0]
    copy = path.parent / "copies" / path.name
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    found, refused = stated_claims(claims, claims.files())
    assert len(found) == len(claims.files()) - 1
    assert [problem.pointer for error in refused for problem in error.problems] == ["/id"]
