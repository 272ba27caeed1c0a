"""Archives of bundles: the same bytes for the same content, and what hostile ones leave behind, which is nothing."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.evidence import pack as packing
from harness.evidence import unpack as unpacking
from harness.evidence.archive import ArchiveError
from harness.evidence.findings import Code, Verification
from harness.evidence.pack import NothingToPack, pack
from harness.evidence.unpack import unpack
from harness.evidence.verify import find_bundles, verify
from tests.cli.folders import contents
from tests.contracts import healthy
from tests.evidence.factory import copy_of, found, reseal, sealed
from tests.evidence.zips import Entry, write_zip

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def archive(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One bundle, packed."""
    path = tmp_path_factory.mktemp("archive") / "one.zip"
    pack([pristine], path)
    return path


def refused(source: Path, into: Path) -> str:
    """Why an archive was not unpacked; nothing may be left of it."""
    before = contents(into.parent)
    with pytest.raises((ArchiveError, OSError)) as error:
        unpack(source, into)
    assert contents(into.parent) == before
    return str(error.value)


def unpacked(source: Path, into: Path) -> Verification:
    """The only bundle of an archive, which was not there before."""
    (one,) = unpack(source, into)
    assert one.is_new
    return one.bundle


# Packing


def test_a_bundle_comes_back_as_it_was(pristine: Path, archive: Path, tmp_path: Path) -> None:
    """At its place, verified, whole."""
    one = unpacked(archive, tmp_path / "evidence")
    assert one.path == tmp_path.joinpath("evidence", *pristine.parts[-3:])
    assert (one.sound, one.id, one.verdict) == (True, "F-DEMO-SORT-001", "PASS")
    assert contents(one.path) == contents(pristine)
    assert verify(one.path).sound


def test_the_same_content_gives_the_same_bytes(pristine: Path, archive: Path, tmp_path: Path) -> None:
    """Whatever the copy's times, modes, order of writing and place."""
    copy = tmp_path / "elsewhere"
    for path in sorted(pristine.rglob("*"), reverse=True):
        if path.is_file():
            target = copy / path.relative_to(pristine)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            os.utime(target, (0, 0))
            target.chmod(0o777)
    packed = pack([copy], tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    assert packed.sha256 == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert packed.size == archive.stat().st_size


def test_the_bytes_are_those_of_every_version_of_python(tmp_path: Path) -> None:
    """Compared with what was written down; so a zlib, or a zipfile module, that writes otherwise is noticed."""
    target = tmp_path / "fixed.zip"
    names = [("DEMO-1/F-X-001/run/artifacts/\u00e9.txt", b"hello\n" * 100), ("DEMO-1/F-X-001/run/record.json", b"{}")]
    for name, content in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    files = [packing._File(tmp_path, name, name, len(content), None) for name, content in names]
    with target.open("wb") as output:
        packing._write(output, files)
    expected = b""
    directory = b""
    for name, content in names:
        raw, flags = name.encode(), 0 if name.isascii() else 0x800
        common = struct.pack(
            "<5H3L2H", 20, flags, 0, 0, 33, zlib.crc32(content), len(content), len(content), len(raw), 0
        )
        directory += b"PK\1\2" + struct.pack("<H", 0x0314) + common
        directory += struct.pack("<3H2L", 0, 0, 0, 0o100644 << 16, len(expected)) + raw
        expected += b"PK\3\4" + common + raw + content
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, len(directory), len(expected), 0)
    assert target.read_bytes() == expected + directory + end


def test_a_selection_is_packed_once_each_in_the_order_of_places(tmp_path: Path) -> None:
    """Whichever paths lead to them; the verdicts may be any."""
    late = sealed(tmp_path, run="b-fail", measurements=healthy(returned=2))
    early = sealed(tmp_path, run="a-pass")
    sealed(tmp_path, run="c-left-out")
    packed = pack([late, early, late.parent / "a-pass"], tmp_path / "two.zip")
    assert [(one.run, str(one.verdict)) for one in packed.bundles] == [("a-pass", "PASS"), ("b-fail", "FAIL")]
    assert packed.files == len(ZipFile(tmp_path / "two.zip").namelist())
    assert [one.bundle.run for one in unpack(tmp_path / "two.zip", tmp_path / "out")] == ["a-pass", "b-fail"]
    assert find_bundles([tmp_path / "out"]) == sorted((tmp_path / "out").glob("*/*/*"))


def test_an_unsound_bundle_is_not_packed(bundle: Path, tmp_path: Path) -> None:
    """And no file is left."""
    (bundle / "summary.md").write_text("# PASS\n")
    with pytest.raises(ArchiveError, match=r"is unsound \(TAMPERED summary.md"):
        pack([bundle], tmp_path / "a.zip")
    assert not list(tmp_path.glob("*.zip*")) + list(tmp_path.glob(".*"))


def test_a_bundle_that_changes_after_it_was_verified_is_not_packed(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in an archive is what was verified."""
    write = packing._write

    def change_then_write(*arguments: Any) -> None:
        (bundle / "summary.md").write_text("# PASS\n")
        write(*arguments)

    monkeypatch.setattr(packing, "_write", change_then_write)
    with pytest.raises(ArchiveError, match=r"summary\.md changed after it was verified"):
        pack([bundle], tmp_path / "a.zip")
    assert not list(tmp_path.glob("*.zip*")) + list(tmp_path.glob(".*"))


def test_an_existing_file_is_not_replaced(pristine: Path, tmp_path: Path) -> None:
    """Nor one that came while we packed, nor a link that leads nowhere."""
    target = tmp_path / "a.zip"
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        pack([pristine], target)
    assert target.read_text() == "mine"
    target.unlink()
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        pack([pristine], target)
    assert contents(tmp_path).keys() == {"a.zip"}


def test_a_file_that_comes_meanwhile_is_not_replaced(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the filesystem has no hard links."""

    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    target, write = tmp_path / "a.zip", packing._write

    def write_and_be_late(*arguments: Any) -> None:
        write(*arguments)
        target.write_text("theirs")

    monkeypatch.setattr(packing, "_write", write_and_be_late)
    for link in (os.link, no_links):
        monkeypatch.setattr(os, "link", link)
        with pytest.raises(FileExistsError):
            pack([pristine], target)
        assert target.read_text() == "theirs"
        assert contents(tmp_path).keys() == {"a.zip"}
        target.unlink()
    monkeypatch.setattr(packing, "_write", write)
    pack([pristine], target)
    assert contents(tmp_path).keys() == {"a.zip"}


def test_nothing_to_pack_is_told_apart(tmp_path: Path) -> None:
    """From what stands in the way."""
    with pytest.raises(NothingToPack):
        pack([tmp_path], tmp_path / "a.zip")
    with pytest.raises(ArchiveError, match="is no folder"):
        pack([tmp_path / "missing"], tmp_path / "a.zip")


def test_two_bundles_of_one_run_are_refused(bundle: Path, tmp_path: Path) -> None:
    """They would lie at one place."""
    other = copy_of(bundle, tmp_path / "other")
    with pytest.raises(ArchiveError, match="are bundles of the same run"):
        pack([bundle, other], tmp_path / "a.zip")


def test_names_that_could_not_be_unpacked_are_not_packed(tmp_path: Path) -> None:
    """Two artifacts that one filesystem in three takes for one."""
    left = tmp_path / "left"
    left.mkdir()
    (left / "Loss.txt").write_text("1")
    (left / "loss.txt").write_text("2")
    with pytest.raises(ArchiveError, match="may be one file"):
        pack([sealed(tmp_path, artifacts=left)], tmp_path / "a.zip")


# Unpacking


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_folder_to_unpack_into_is_made(archive: Path, tmp_path: Path, depth: int) -> None:
    """And is gone again after a refusal."""
    into = tmp_path.joinpath(*"abc"[:depth])
    unpack(archive, into)
    assert refused(
        write_zip(tmp_path / "bad.zip", [Entry(b"DEMO-1/F-X-001/run/record.json", b"{}")]), tmp_path / "z/y/x"
    )


def test_an_archive_of_other_programs_is_unpacked(pristine: Path, tmp_path: Path) -> None:
    """Compressed, with folders of its own."""
    source = tmp_path / "a.zip"
    with ZipFile(source, "w", ZIP_DEFLATED) as archive:
        root = pristine.parents[2]
        for path in sorted(root.rglob("*")):
            archive.write(path, path.relative_to(root))
    one = unpacked(source, tmp_path / "out")
    assert contents(one.path) == contents(pristine)


def test_what_is_there_already_is_not_replaced(archive: Path, tmp_path: Path) -> None:
    """Neither a file nor a folder nor a link, were it to the very bundle."""
    one = unpacked(archive, tmp_path / "out")
    one.path.rename(tmp_path / "moved")
    one.path.symlink_to(tmp_path / "moved")
    assert "is there already and differs (it is no folder); it is not replaced" in refused(archive, tmp_path / "out")
    one.path.unlink()
    one.path.write_text("mine")
    assert "is there already and differs (it is no folder); it is not replaced" in refused(archive, tmp_path / "out")
    one.path.unlink()
    one.path.mkdir()
    assert "MANIFEST.sha256 is only in the archive" in refused(archive, tmp_path / "out")


DIFFERENCES: list[tuple[Callable[[Path], object], str]] = [
    (lambda place: (place / "summary.md").unlink(), "summary.md is only in the archive"),
    (lambda place: (place / "notes.txt").write_text("mine"), "notes.txt is only there"),
    (lambda place: (place / "attestation.intoto.jsonl").write_text("mine"), "attestation.intoto.jsonl is only there"),
    (lambda place: (place / "mutants" / "mine").mkdir(), "mutants/mine is only there"),
    (lambda place: (place / "mutants" / "mine").symlink_to("/"), "mutants/mine is a symbolic link"),
    (lambda place: (place / "summary.md").write_text("mine"), "summary.md has other content"),
    (
        lambda place: (place / "stdout.log").write_bytes((place / "stdout.log").read_bytes().swapcase()),
        "stdout.log has other content",
    ),
]


@pytest.mark.parametrize(("change", "says"), DIFFERENCES, ids=[says for _, says in DIFFERENCES])
def test_a_bundle_that_is_there_and_differs_is_not_replaced(
    archive: Path, tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    """In one file, one byte or one empty folder: it stays as it is, and the first difference is named."""
    change(unpacked(archive, tmp_path / "out").path)
    assert f"is there already and differs ({says}); it is not replaced" in refused(archive, tmp_path / "out")


def test_what_is_there_byte_for_byte_is_left_as_it_is(tmp_path: Path) -> None:
    """And what is not yet there comes beside it; one that differs keeps all from coming."""
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
    (there / "summary.md").write_text("mine")
    refused(tmp_path / "two.zip", into)


def test_an_unsound_bundle_is_not_called_sound_because_it_is_there(pristine: Path, tmp_path: Path) -> None:
    """Its copy in the archive is as unsound as it is."""
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
    """And those moved before it are taken back, with the folders made for them."""
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
    """Also beside a sound bundle: nothing is written, inside or outside."""
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
    """Empty, or folders alone."""
    assert "holds no bundle" in refused(write_zip(tmp_path / "a.zip", []), tmp_path / "out")
    folders = [Entry(b"DEMO-1/", attributes=0o040755 << 16)]
    assert "holds no bundle" in refused(write_zip(tmp_path / "a.zip", folders), tmp_path / "out")


def test_an_unsound_bundle_is_not_unpacked(bundle: Path, tmp_path: Path) -> None:
    """Whoever packed it did not verify it."""
    (bundle / "observation.json").write_text("{}")
    reseal(bundle)
    root = bundle.parents[2]
    files = [path for path in bundle.rglob("*") if path.is_file()]
    entries = [Entry(path.relative_to(root).as_posix().encode(), path.read_bytes()) for path in files]
    assert "is unsound: " in refused(write_zip(tmp_path / "a.zip", entries), tmp_path / "out")


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_bundle_at_the_place_of_another_is_refused(pristine: Path, tmp_path: Path, position: int) -> None:
    """It would speak for another claim, issue or run."""
    place = list(pristine.parts[-3:])
    place[position] += "X"
    files = [path for path in pristine.rglob("*") if path.is_file()]
    entries = [
        Entry("/".join([*place, path.relative_to(pristine).as_posix()]).encode(), path.read_bytes()) for path in files
    ]
    refused(write_zip(tmp_path / "a.zip", entries), tmp_path / "out")


def test_a_full_disk_leaves_nothing(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a part of a bundle."""

    def full(*_: object) -> Iterator[bytes]:
        yield b"{"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(unpacking, "content", full)
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
    """But not what a living one is still writing."""
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
def test_a_changed_archive_gives_the_same_bundle_or_nothing(archive: Path, tmp_path: Path, data: st.DataObject) -> None:
    """One stretch of bytes anywhere replaced, cut out or put in."""
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
    # A time, a version or an owner: what is in the bundle is what it was.
    assert changed.stat().st_size == len(content)
    assert verify(one.path).sound
    shutil.rmtree(into)
