"""Unpacking bundles. A hostile archive leaves nothing behind."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from harness.evidence import unpacking as unpacking
from harness.evidence.findings import Code, Verification
from harness.evidence.packing import ArchiveError, pack
from harness.evidence.unpacking import unpack
from harness.evidence.verification import find_bundles, verify
from tests.cli.folders import contents
from tests.evidence.factory import copy_of, found, reseal, sealed
from tests.evidence.zips import Entry, write_zip

SETTINGS = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def refused(source: Path, into: Path) -> str:
    """The reason why an archive was refused. Nothing of it may be left."""
    before = contents(into.parent)
    with pytest.raises((ArchiveError, OSError)) as error:
        unpack(source, into)
    assert contents(into.parent) == before
    return str(error.value)


def unpacked(source: Path, into: Path) -> Verification:
    """The only bundle of an archive, whose place was empty before."""
    (one,) = unpack(source, into)
    assert one.is_new
    return one.bundle


def test_a_bundle_comes_back_as_it_was(pristine: Path, archive: Path, tmp_path: Path) -> None:
    """The bundle is at its place, verified and complete."""
    one = unpacked(archive, tmp_path / "evidence")
    assert one.path == tmp_path.joinpath("evidence", *pristine.parts[-3:])
    assert (one.sound, one.id, one.verdict) == (True, "F-DEMO-SORT-001", "PASS")
    assert contents(one.path) == contents(pristine)
    assert verify(one.path).sound


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_folder_to_unpack_into_is_made(archive: Path, tmp_path: Path, depth: int) -> None:
    """The folder is made. After a refusal it is removed."""
    into = tmp_path.joinpath(*"abc"[:depth])
    unpack(archive, into)
    assert refused(
        write_zip(tmp_path / "bad.zip", [Entry(b"DEMO-1/F-X-001/run/record.json", b"{}")]), tmp_path / "z/y/x"
    )


def test_an_archive_of_other_programs_is_unpacked(pristine: Path, tmp_path: Path) -> None:
    """The archive is compressed, and has folders as entries."""
    source = tmp_path / "a.zip"
    with ZipFile(source, "w", ZIP_DEFLATED) as archive:
        root = pristine.parents[2]
        for path in sorted(root.rglob("*")):
            archive.write(path, path.relative_to(root))
    one = unpacked(source, tmp_path / "out")
    assert contents(one.path) == contents(pristine)


def test_what_is_there_already_is_not_replaced(archive: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A file, a folder and a link stay, even a link to the same bundle."""
    one = unpacked(archive, tmp_path / "out")
    one.path.rename(tmp_path / "moved")
    one.path.symlink_to(tmp_path / "moved")
    found = {"link": difference(archive, tmp_path / "out")}
    one.path.unlink()
    one.path.write_text("mine")
    found["file"] = difference(archive, tmp_path / "out")
    one.path.unlink()
    one.path.mkdir()
    found["empty folder"] = difference(archive, tmp_path / "out")
    assert found == snapshot


def difference(archive: Path, into: Path) -> str:
    """The reason why an archive is not unpacked, with a fixed name for the folder."""
    return refused(archive, into).replace(str(into), "EVIDENCE")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda place: (place / "trials.log").unlink(), id="missing"),
        pytest.param(lambda place: (place / "notes.txt").write_text("mine"), id="added"),
        pytest.param(lambda place: (place / "attestation.intoto.jsonl").write_text("mine"), id="signed"),
        pytest.param(lambda place: (place / "artifacts" / "mine").mkdir(), id="empty folder"),
        pytest.param(lambda place: (place / "artifacts" / "mine").symlink_to("/"), id="link"),
        pytest.param(lambda place: (place / "trials.log").write_text("mine"), id="content"),
        pytest.param(
            lambda place: (place / "metrics.csv").write_bytes((place / "metrics.csv").read_bytes().swapcase()),
            id="content of the same size",
        ),
    ],
)
def test_a_bundle_that_is_there_and_differs_is_not_replaced(
    archive: Path, tmp_path: Path, change: Callable[[Path], object], snapshot: SnapshotAssertion
) -> None:
    """If one file, one byte or one empty folder differs, the bundle stays, and the text names the first difference."""
    change(unpacked(archive, tmp_path / "out").path)
    assert difference(archive, tmp_path / "out") == snapshot


def test_what_is_there_byte_for_byte_is_left_as_it_is(tmp_path: Path) -> None:
    """New bundles are unpacked beside it. If one differs, none is unpacked."""
    first, second = sealed(tmp_path / "made", run="a"), sealed(tmp_path / "made", run="b")
    pack([first], tmp_path / "one.zip")
    pack([first, second], tmp_path / "two.zip")
    into = tmp_path / "out"
    there = unpacked(tmp_path / "one.zip", into).path
    before = (there.stat().st_ino, there.stat().st_mtime_ns, contents(into))
    [again] = unpack(tmp_path / "one.zip", into)
    assert (again.is_new, again.bundle.path, again.bundle.sound) == (False, there, True)
    assert (there.stat().st_ino, there.stat().st_mtime_ns, contents(into)) == before
    assert [one.is_new for one in unpack(tmp_path / "two.zip", into)] == [False, True]
    assert contents(into) == contents(tmp_path / "made" / "evidence")
    shutil.rmtree(into.joinpath(*second.parts[-3:]))
    (there / "trials.log").write_text("mine")
    refused(tmp_path / "two.zip", into)


def test_an_unsound_bundle_is_not_called_sound_because_it_is_there(pristine: Path, tmp_path: Path) -> None:
    """The existing bundle is unsound, and its equal copy in the archive is refused too."""
    bundle = copy_of(pristine, tmp_path / "evidence")
    (bundle / "observation.json").write_text("{}")
    reseal(bundle)
    root = bundle.parents[2]
    files = [path for path in bundle.rglob("*") if path.is_file()]
    entries = [Entry(path.relative_to(root).as_posix().encode(), path.read_bytes()) for path in files]
    assert "is unsound: " in refused(write_zip(tmp_path / "a.zip", entries), root)


def test_a_bundle_that_comes_meanwhile_is_not_replaced(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bundles that were moved before it are removed, with the folders made for them."""
    evidence = tmp_path / "made"
    first, second = sealed(evidence, run="a"), sealed(evidence, run="b")
    pack([first, second], tmp_path / "two.zip")
    into = tmp_path / "out"
    late = into.joinpath(*second.parts[-3:])
    sync = unpacking.sync_tree

    def sync_and_be_late(folder: Path) -> None:
        sync(folder)
        late.mkdir(parents=True)
        (late / "theirs").write_text("theirs")

    monkeypatch.setattr(unpacking, "sync_tree", sync_and_be_late)
    with pytest.raises(OSError):  # noqa: PT011  ENOTEMPTY or EEXIST, as the filesystem likes
        unpack(tmp_path / "two.zip", into)
    assert contents(late.parent) == {"b": None, "b/theirs": b"theirs"}
    assert not list(into.glob(".*"))


HOSTILE = [
    ("../../x", b"x"),
    ("/tmp/x", b"x"),
    ("DEMO-1\\F-X-001\\run\\record.json", b"x"),
    ("DEMO-1/F-X-001/run/../../../../x", b"x"),
    ("DEMO-1/F-X-001/run/record.json", b"{}"),
    ("DEMO-1/F-X-001/run/empty/", b""),
    ("record.json", b"{}"),
]


@pytest.mark.parametrize(("name", "content"), HOSTILE)
def test_a_hostile_entry_spoils_the_whole_archive(pristine: Path, tmp_path: Path, name: str, content: bytes) -> None:
    """A sound bundle in the same archive is not unpacked either. Nothing is written, inside or outside."""
    attributes = (0o040755 if name.endswith("/") else 0o100644) << 16
    entries = [
        Entry("/".join([*pristine.parts[-3:], path.relative_to(pristine).as_posix()]).encode(), path.read_bytes())
        for path in sorted(pristine.rglob("*"))
        if path.is_file()
    ]
    bad = Entry(name.encode(), content, attributes=attributes)
    for archive in ([*entries, bad], [bad, *entries]):
        refused(write_zip(tmp_path / "a.zip", archive), tmp_path / "out" / "deep")
    unpack(write_zip(tmp_path / "a.zip", entries), tmp_path / "out")


def test_an_archive_without_bundles_is_refused(tmp_path: Path) -> None:
    """An empty archive, and one with only folders, are refused."""
    assert "holds no bundle" in refused(write_zip(tmp_path / "a.zip", []), tmp_path / "out")
    folders = [Entry(b"DEMO-1/", attributes=0o040755 << 16)]
    assert "holds no bundle" in refused(write_zip(tmp_path / "a.zip", folders), tmp_path / "out")


def test_an_unsound_bundle_is_not_unpacked(bundle: Path, tmp_path: Path) -> None:
    """The archive's author did not verify it, so `unpack` does."""
    (bundle / "observation.json").write_text("{}")
    reseal(bundle)
    root = bundle.parents[2]
    files = [path for path in bundle.rglob("*") if path.is_file()]
    entries = [Entry(path.relative_to(root).as_posix().encode(), path.read_bytes()) for path in files]
    assert "is unsound: " in refused(write_zip(tmp_path / "a.zip", entries), tmp_path / "out")


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_bundle_at_the_place_of_another_is_refused(pristine: Path, tmp_path: Path, position: int) -> None:
    """At the place of another, it would count for another claim, issue or run."""
    place = list(pristine.parts[-3:])
    place[position] += "X"
    files = [path for path in pristine.rglob("*") if path.is_file()]
    entries = [
        Entry("/".join([*place, path.relative_to(pristine).as_posix()]).encode(), path.read_bytes()) for path in files
    ]
    refused(write_zip(tmp_path / "a.zip", entries), tmp_path / "out")


def test_a_full_disk_leaves_nothing(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of a bundle is left."""

    def full(*_: object) -> Iterator[bytes]:
        yield b"{"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpacking, "_content", full)
    assert "No space left" in refused(archive, tmp_path / "out" / "deep")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def test_what_a_killed_reader_left_is_no_bundle_and_is_removed_by_the_next(
    pristine: Path, archive: Path, tmp_path: Path
) -> None:
    """A folder that a living process still writes stays."""
    into = tmp_path / "out"
    dead, living = into / ".unpacking-dead", into / ".unpacking-living"
    for folder in (dead, living):
        copy_of(pristine, folder)
    with _locked(living):
        assert find_bundles([into]) == [dead, living]
        assert found(verify(dead)) == {(Code.INCOMPLETE, "")}
        unpack(archive, into)
        assert not dead.exists()
        assert living.exists()


@SETTINGS
@given(data=st.data())
def test_a_changed_archive_gives_the_same_bundle_or_nothing(
    archive: Path, pristine: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """One stretch of bytes is replaced, cut out or inserted."""
    content = archive.read_bytes()
    start = data.draw(st.integers(0, len(content)) | st.integers(len(content) - 3000, len(content)))
    length = data.draw(st.integers(0, 4))
    inserted = data.draw(st.binary(max_size=4))
    changed = tmp_path / "changed.zip"
    changed.write_bytes(content[:start] + inserted + content[start + length :])
    into = tmp_path / "out"
    try:
        one = unpacked(changed, into)
    except ArchiveError:
        assert not into.exists()
        return
    # The change hit a time, a version, an owner, or bytes that zipfile skips, so the bundle is the same.
    assert one.sound
    assert contents(one.path) == contents(pristine)
    shutil.rmtree(into)


def test_a_filesystem_without_locks_is_unpacked_into(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lustre and NFS may have no locks. Whether a folder was abandoned is unknown there, so it stays."""

    def refuse(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    abandoned = tmp_path / ".unpacking-old"
    abandoned.mkdir()
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert unpack(archive, tmp_path)
    assert abandoned.is_dir()


@pytest.mark.parametrize(
    ("size", "is_refused"), [(0, False), (60, False), (99, False), (100, False), (101, True), (1_000_000, True)]
)
def test_an_archive_that_would_become_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, is_refused: bool
) -> None:
    """The content has more than ten bytes for each byte of the archive.

    The next test has archives that are too small for this limit.
    """
    monkeypatch.setattr(unpacking, "_STEEPEST", 10)
    monkeypatch.setattr(unpacking, "_FLAT", 50)
    path = tmp_path / "a.zip"
    path.write_bytes(b"x" * 10)
    archive = cast(ZipFile, SimpleNamespace(filename=str(path)))
    if is_refused:
        with pytest.raises(ArchiveError) as refused:
            unpacking._check_ratio(archive, size)
        assert str(refused.value).startswith(f"has 10 bytes and would become {size}; ")
    else:
        unpacking._check_ratio(archive, size)


def test_small_archives_have_no_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_STEEPEST", 1)
    monkeypatch.setattr(unpacking, "_FLAT", 50)
    path = tmp_path / "a.zip"
    path.write_bytes(b"x" * 10)
    archive = cast(ZipFile, SimpleNamespace(filename=str(path)))
    unpacking._check_ratio(archive, 50)
    with pytest.raises(ArchiveError):
        unpacking._check_ratio(archive, 51)


@pytest.mark.parametrize("content", [b"", b"PK", b"x" * 100])
def test_what_is_no_archive_says_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with pytest.raises(ArchiveError):
        unpack(path, tmp_path / "evidence")


def test_an_archive_of_the_largest_size_is_opened(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = archive.stat().st_size
    monkeypatch.setattr(unpacking, "LARGEST_ARCHIVE", size)
    with unpacking._opened(archive) as opened:
        assert opened.infolist()
    monkeypatch.setattr(unpacking, "LARGEST_ARCHIVE", size - 1)
    with pytest.raises(ArchiveError) as refused, unpacking._opened(archive):
        pass
    assert str(refused.value) == f"has {size} bytes; an archive of bundles has at most {size - 1}"
