"""Claims that installed distributions bring."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.contract.installed import claims_roots, root_of


def test_folders_with_contracts_are_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of `sys.path` and then by name, each once. The empty entry is not the present folder."""
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
        assert root_of(root / "contracts" / "F-A-001.json") == root
    assert root_of(early / "none" / "contracts") is None
    assert root_of(tmp_path) is None
    monkeypatch.setattr(sys, "path", [])
    assert claims_roots() == ()
