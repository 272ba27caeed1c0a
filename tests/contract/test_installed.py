"""Claims that installed distributions bring."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.contract.installed import claims_roots, or_installed, root_of


def test_folders_with_contracts_are_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are in the order of `sys.path` and then by name, each once. The empty entry is not the current folder."""
    for name in ("late/harness_claims/a", "early/harness_claims/z", "early/harness_claims/b", "harness_claims/here"):
        (tmp_path / name / "contracts").mkdir(parents=True)
    (tmp_path / "early/harness_claims/none").mkdir()
    (tmp_path / "early/harness_claims/file").touch()
    monkeypatch.chdir(tmp_path)
    path = ["", tmp_path / "missing", tmp_path / "early", tmp_path / "late", tmp_path / "early"]
    monkeypatch.setattr(sys, "path", [str(one) if one else "" for one in path])
    early = tmp_path / "early/harness_claims"
    roots = (early / "b", early / "z", tmp_path / "late/harness_claims/a")
    assert claims_roots() == roots
    for root in roots:
        assert root_of(root / "contracts" / "F-A-001" / "contract.json") == root
    assert root_of(early / "none" / "contracts") is None
    assert root_of(tmp_path) is None
    monkeypatch.setattr(sys, "path", [])
    assert claims_roots() == ()


def test_a_file_that_is_missing_here_is_the_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If both folders have a file, the one of the current folder is taken."""
    root, name = tmp_path / "site/harness_claims/a", Path("trainers/some.toml")
    (root / "contracts").mkdir(parents=True)
    (root / name).parent.mkdir()
    (root / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert or_installed(name) == root / name
    assert or_installed(Path("trainers/another.toml")) == Path("trainers/another.toml")
    name.parent.mkdir()
    name.touch()
    assert or_installed(name) == name
