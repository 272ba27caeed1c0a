"""Sealing on disks that are full or read-only: the error names the place, and no part of a bundle is left."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.evidence import bundle_layout
from harness.evidence.bundle_layout import MANIFEST
from harness.evidence.seal import Sealer, SealError
from harness.evidence.verification import verify
from tests.evidence.factory import claim_result, sealed, sealer

ROOT = Path(__file__).parents[2]


def everything_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder, where a bundle goes that cannot be written at its place."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 84 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=84k", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs to mount a filesystem: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.usefixtures("temporary")
def test_a_full_disk_leaves_nothing_that_looks_like_a_bundle(small_disk: Path, tmp_path: Path) -> None:
    """The error has the place and the remedy, and the written part is removed."""
    result = claim_result(tmp_path, output="x" * 60_000)
    with pytest.raises(SealError, match=r"was not sealed: .*No space left.*--evidence") as caught:
        sealer(small_disk).seal(result)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.elsewhere is not None
    assert verify(caught.value.elsewhere).sound
    assert everything_below(small_disk) == {"evidence", "evidence/DEMO-1", "evidence/DEMO-1/F-DEMO-SORT-001"}
    smaller = claim_result(tmp_path, run="2026-11-20T201503Z-cpu-000000")
    assert verify(sealer(small_disk).seal(smaller)).sound


def test_a_limit_on_file_sizes_is_a_full_disk(tmp_path: Path) -> None:
    """`ulimit -f` cuts a write short, so this test needs no small filesystem."""
    script = f"""
import resource, signal, sys
from pathlib import Path
from tests.evidence.factory import claim_result, sealer
result = claim_result(Path({str(tmp_path)!r}), output="x" * 60_000)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))
try:
    sealer(Path({str(tmp_path)!r})).seal(result)
except OSError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert "was not sealed" in ended.stdout, ended.stderr
    assert "ulimit -f" in ended.stdout
    assert not any(path.is_file() for path in (tmp_path / "evidence").rglob("*"))


def test_a_bundle_is_as_large_as_its_limits_and_no_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that `verify` would refuse is not sealed."""
    bundle = sealed(tmp_path)
    sizes = [path.stat().st_size for path in bundle.iterdir() if path.name != MANIFEST]
    for limit, most in (("LARGEST_DOCUMENT", max(sizes)), ("LARGEST_BUNDLE", sum(sizes))):
        monkeypatch.setattr(bundle_layout, limit, most)
        shutil.rmtree(bundle)
        assert sealed(tmp_path) == bundle
        for less in (1, 2):
            monkeypatch.setattr(bundle_layout, limit, most - less)
            shutil.rmtree(bundle, ignore_errors=True)
            with pytest.raises(SealError, match=str(most)):
                sealed(tmp_path)
        monkeypatch.undo()
        sealed(tmp_path)


@pytest.mark.usefixtures("temporary")
def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    """A file with the name of the evidence folder is named."""
    (tmp_path / "evidence").write_text("")
    with pytest.raises(SealError, match="--evidence"):
        sealed(tmp_path)


def test_where_the_temporary_folder_is_full_too_nothing_is_written(tmp_path: Path, temporary: Path) -> None:
    """The error is about the evidence folder. Nothing is left in either folder."""
    (tmp_path / "evidence").write_text("")
    result = claim_result(tmp_path / "contracts")

    def attest(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SealError) as caught:
        Sealer(tmp_path / "evidence", attest).seal(result)
    assert (caught.value.errno, caught.value.elsewhere) == (errno.ENOTDIR, None)
    assert everything_below(temporary) == set()


def test_a_folder_without_permission_is_named(
    not_root: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the remedy."""
    monkeypatch.setattr(tempfile, "tempdir", str(not_root))
    (not_root / "evidence").mkdir(mode=0o500)
    with pytest.raises(SealError) as refused:
        sealed(not_root)
    assert refused.value.errno == errno.EACCES
    os.seteuid(os.getuid())  # the snapshot can be in root's home
    assert str(refused.value).replace(str(not_root), "FOLDER") == snapshot


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("parts", [["DEMO-1"], ["DEMO-1", "F-DEMO-SORT-001"]])
def test_a_link_in_the_evidence_leads_nowhere(tmp_path: Path, parts: list[str]) -> None:
    """A folder of the evidence that is a link refuses the bundle with the link's path. Nothing is written there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path.joinpath("evidence", *parts)
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(SealError) as refused:
        sealed(tmp_path)
    assert f"'{link}'" in str(refused.value)
    assert list(elsewhere.iterdir()) == []


def _replaced_by_a_link(root: Path, elsewhere: Path) -> None:
    root.rename(root.with_name("away"))
    root.symlink_to(elsewhere, target_is_directory=True)


def _replaced_by_a_folder(root: Path, elsewhere: Path) -> None:
    root.rename(root.with_name("away"))
    root.mkdir()


def _a_parent_replaced_by_a_link(root: Path, elsewhere: Path) -> None:
    root.parent.rename(root.parent.with_name("gone"))
    (elsewhere / root.name).mkdir()
    root.parent.symlink_to(elsewhere, target_is_directory=True)


def _removed(root: Path, elsewhere: Path) -> None:
    shutil.rmtree(root)


def _replaced_by_a_file(root: Path, elsewhere: Path) -> None:
    shutil.rmtree(root)
    root.write_text("")


def _replaced_by_a_link_to_itself(root: Path, elsewhere: Path) -> None:
    root.rename(root.with_name("away"))
    root.symlink_to(root)


@pytest.mark.parametrize(
    "replace",
    [
        _replaced_by_a_link,
        _replaced_by_a_folder,
        _a_parent_replaced_by_a_link,
        _removed,
        _replaced_by_a_file,
        _replaced_by_a_link_to_itself,
    ],
)
def test_the_root_stays_the_folder_of_the_start(tmp_path: Path, replace: Callable[[Path, Path], None]) -> None:
    """If something else takes the place of the evidence during a run, the bundle goes to a scratch folder only."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root = tmp_path / "project" / "evidence"
    sealer = Sealer(root)
    sealer.prepare()
    result = claim_result(tmp_path / "contracts")
    replace(root, elsewhere)
    with pytest.raises(SealError) as refused:
        sealer.seal(result)
    assert refused.value.elsewhere is not None
    assert (refused.value.elsewhere / "record.json").is_file()
    assert not list(tmp_path.rglob("record.json"))
    shutil.rmtree(refused.value.elsewhere)
