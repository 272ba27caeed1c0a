"""`harness.verify` in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.contract.project import Project
from harness.evidence.findings import Code
from harness.evidence.verification import Against
from harness.evidence.verified import verify
from harness.tools.sign.keys import generate
from tests.contracts import write_project


def test_every_bundle_below_a_path(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results are sorted by path. A path without a bundle is not an error."""
    monkeypatch.chdir(tmp_path)
    other = bundle.with_name("2026-11-21T201503Z-cpu-3f2a9c")
    shutil.copytree(bundle, other)
    found = verify(str(bundle.parent))
    assert [(bundle.path, bundle.sound, bundle.accepted) for bundle in found] == [
        (bundle, True, True),
        (other, False, False),
    ]
    (tmp_path / "empty").mkdir()
    assert verify(tmp_path / "empty") == ()


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.zip").touch()
    for name in ("missing", "a.zip"):
        with pytest.raises(NotADirectoryError) as refused:
            verify(tmp_path / name)
        assert str(refused.value).startswith(f"{tmp_path / name} ")


def test_a_remark_can_be_refused(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If keys are trusted, a bundle without a signature is not accepted either."""
    monkeypatch.chdir(tmp_path)
    (result,) = verify(bundle, fail_on=["REDUCED_PROFILE"])
    assert (result.sound, result.accepted) == (True, False)
    (result,) = verify(bundle, fail_on=["DIRTY_TREE"])
    assert result.accepted
    with pytest.raises(ValueError, match="NO_SUCH_CODE"):
        verify(bundle, fail_on=["NO_SUCH_CODE"])
    _, public = generate(tmp_path / "a.key")
    (result,) = verify(bundle, trusted_keys=[str(public)])
    assert (result.sound, result.accepted) == (True, False)


def test_what_bundles_are_checked_against(tmp_path: Path) -> None:
    """The context has the ids of the trusted keys, the project if there is one, and the refused remarks."""
    none = Against.of([], None)
    assert (none.trusted, none.state, none.refused) == ({}, None, frozenset())
    key, public = generate(tmp_path / "a.key")
    other, public_of_other = generate(tmp_path / "b.key")
    project = Project.find(write_project(tmp_path / "project"))
    against = Against.of([public, public_of_other], project, frozenset({Code.DIRTY_TREE}))
    assert against.trusted == {key.keyid: key, other.keyid: other}
    assert against.state is not None
    assert against.refused == {Code.DIRTY_TREE, Code.UNSIGNED, Code.UNKNOWN_KEY}
