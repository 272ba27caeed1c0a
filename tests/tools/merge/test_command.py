"""`harness merge`, through the installed command."""

from __future__ import annotations

import shutil
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from tests.cli.folders import contents
from tests.cli.harness_command import harness
from tests.contracts import healthy
from tests.evidence.factory import copy_of, rewrite, sealed, set_at, tamper


def test_hosts_are_merged_and_what_is_left_out_is_named(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """The exit status is 2 if a bundle was left out, 3 if there is none, else 0."""
    first = sealed(tmp_path / "made", run="first")
    copy_of(first, tmp_path / "a")
    copy_of(sealed(tmp_path / "made", run="second", measurements=healthy(returned=2)), tmp_path / "b")
    copy_of(first, tmp_path / "b")
    fine = harness(tmp_path, "merge", "a", "b", "--into", "evidence")
    assert (fine.returncode, fine.stderr) == (0, "")
    rewrite(copy_of(first, tmp_path / "c"), "record.json", set_at("started", "2999-01-01T00:00:00Z"))
    tamper(copy_of(first, tmp_path / "d"))
    (tmp_path / "empty").mkdir()
    left = harness(tmp_path, "merge", "b", "c", "d", "empty", "missing", "--into", "evidence")
    none = harness(tmp_path, "merge", "a", "empty", "--into", "evidence")
    assert (left.returncode, none.returncode) == (2, 3)
    now = left.stdout.partition("machine's clock it is ")[2].partition("+")[0]
    assert "\n".join(done.stdout + done.stderr for done in (fine, left)).replace(now, "NOW") == snapshot


def test_an_archive_is_merged_like_a_folder(tmp_path: Path) -> None:
    """Its bundles come to their places byte for byte. What is unsound in it is named by its place in the archive."""
    first = sealed(tmp_path / "made", run="first")
    place = copy_of(first, tmp_path / "a").relative_to(tmp_path / "a")
    shutil.make_archive(str(tmp_path / "some"), "zip", tmp_path / "a")
    done = harness(tmp_path, "merge", "some.zip", "--into", "evidence")
    assert (done.returncode, done.stderr) == (0, "")
    assert contents(tmp_path / "evidence") == contents(tmp_path / "a")
    tamper(tmp_path / "a" / place)
    shutil.make_archive(str(tmp_path / "bad"), "zip", tmp_path / "a")
    left = harness(tmp_path, "merge", "bad.zip", "--into", "evidence")
    assert (left.returncode, f"bad.zip/{place}" in left.stdout.replace("\n", "")) == (2, True)
