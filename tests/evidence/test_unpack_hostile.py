"""Zip files from other_processes: each is refused whole, or gives exactly the bundle that was packed."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.evidence import unpacking as unpacking
from harness.evidence.packing import ArchiveError
from harness.evidence.unpacking import unpack
from tests.cli.folders import contents
from tests.evidence.zips import Entry, write_zip

SETTINGS = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = b"the same line again\n" * 40
ZIP64 = struct.pack("<2HQ", 1, 8, 5)


def deflated(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def entries_of(bundle: Path) -> list[Entry]:
    """Every file of a bundle, in the order of the names."""
    root = bundle.parents[2]
    files = sorted(path for path in bundle.rglob("*") if path.is_file())
    return [Entry(path.relative_to(root).as_posix().encode(), path.read_bytes()) for path in files]


def refused(path: Path) -> None:
    """The archive is refused and leaves nothing behind."""
    with pytest.raises(ArchiveError):
        unpack(path, path.parent / "out")
    assert not (path.parent / "out").exists()


def changed(bundle: Path, folder: Path, change: Callable[[Entry], Entry]) -> Path:
    """An archive of the bundle with a change in its second file."""
    first, second, *rest = entries_of(bundle)
    return write_zip(folder / "a.zip", [first, change(second), *rest])


def packed(entry: Entry, **told: object) -> Entry:
    """A deflated entry."""
    real = {"method": 8, "size": len(entry.data), "crc": zlib.crc32(entry.data), "data": deflated(entry.data)}
    return replace(entry, **{**real, **told})  # type: ignore[arg-type]


REFUSED: dict[str, Callable[[Entry], Entry]] = {
    "encrypted": lambda one: replace(one, flags=0x0801),
    "patched": lambda one: replace(one, flags=0x0820),
    "another method": lambda one: replace(one, method=12),
    "a link": lambda one: replace(one, attributes=0o120777 << 16),
    "a device": lambda one: replace(one, attributes=0o020666 << 16),
    "a pipe": lambda one: replace(one, attributes=0o010666 << 16),
    "a folder by its kind": lambda one: replace(one, attributes=0o040755 << 16),
    "a folder with content": lambda one: replace(one, name=one.name + b"/", attributes=0o040755 << 16),
    "a file by its kind": lambda one: Entry(b"DEMO-1/", b""),
    "another local name": lambda one: replace(one, local_name=b"x" * len(one.name)),
    "a shorter size": lambda one: replace(one, size=5),
    "a longer size": lambda one: packed(one, size=len(one.data) + 1),
    "a shorter deflated size": lambda one: packed(one, size=len(one.data) - 1),
    "another checksum": lambda one: replace(one, crc=7),
    "a name that is not UTF-8": lambda one: replace(one, name=one.name + b"\xff\xfe"),
    "a name with a NUL": lambda one: replace(one, name=one.name + b"\0.txt"),
    "a name of code page 437": lambda one: replace(one, name=one.name + b"\x82", flags=0),
    "an offset of another entry": lambda one: replace(one, offset=0),
    "an offset within an entry": lambda one: replace(one, offset=5),
    "an offset beyond the end": lambda one: replace(one, offset=1 << 31),
    "a zip64 size": lambda one: replace(one, size=0xFFFFFFFF),
    "deflated data cut short": lambda one: packed(one, data=deflated(one.data)[:-3]),
    "no deflated data": lambda one: packed(one, data=b"\xff" * 40),
    "a broken extra field": lambda one: replace(one, extra=struct.pack("<2H", 1, 9) + b"12345"),
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_an_entry_that_lies_is_refused(pristine: Path, tmp_path: Path, change: Callable[[Entry], Entry]) -> None:
    """The entry states a wrong kind, size, content or place."""
    refused(changed(pristine, tmp_path, change))


def test_an_archive_is_as_large_as_its_limit_and_no_larger(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(archive.read_bytes())
    monkeypatch.setattr(unpacking, "LARGEST_ARCHIVE", path.stat().st_size - 1)
    refused(path)
    monkeypatch.setattr(unpacking, "LARGEST_ARCHIVE", path.stat().st_size)
    assert unpack(path, tmp_path / "out")


@pytest.mark.parametrize(("steepest", "is_refused"), [(1, True), (50, False)])
def test_an_archive_that_grows_too_much_is_refused(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steepest: int, is_refused: bool
) -> None:
    """The archive is refused if its bytes are multiplied. For small contents, no ratio applies."""
    path = write_zip(tmp_path / "a.zip", [packed(one) for one in entries_of(bundle)])
    monkeypatch.setattr(unpacking, "_STEEPEST", steepest)
    assert unpack(path, tmp_path / "small")
    monkeypatch.setattr(unpacking, "_FLAT", 0)
    if is_refused:
        refused(path)
    else:
        assert unpack(path, tmp_path / "out")


HARMLESS: dict[str, Callable[[Entry], Entry]] = {
    "deflated": packed,
    "bytes after deflated data": lambda one: packed(one, data=deflated(one.data) + b"x"),
    "a comment": lambda one: replace(one, comment=b"hello"),
    "an extra field": lambda one: replace(one, extra=struct.pack("<2H", 0x5455, 0)),
    "a local extra field": lambda one: replace(one, local_extra=ZIP64),
    "bytes before it": lambda one: replace(one, before=b"MZ"),
    "another local size": lambda one: replace(one, local_size=5),
    "no data descriptor": lambda one: replace(one, flags=0x0808),
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_an_entry_that_programs_read_differently_gives_the_packed_bundle(
    pristine: Path, tmp_path: Path, change: Callable[[Entry], Entry]
) -> None:
    """The manifest decides, because the extracted files are verified."""
    (one,) = unpack(changed(pristine, tmp_path, change), tmp_path / "out")
    assert one.bundle.sound
    assert contents(one.bundle.path) == contents(pristine)


def test_another_name_in_an_extra_field(pristine: Path, tmp_path: Path) -> None:
    """Python reads the field from 3.12 on, and refuses an empty one. Earlier versions ignore it."""
    path = changed(pristine, tmp_path, lambda one: replace(one, extra=struct.pack("<2H", 0x7075, 0)))
    try:
        (one,) = unpack(path, tmp_path / "out")
    except ArchiveError:
        assert not (tmp_path / "out").exists()
    else:
        assert contents(one.bundle.path) == contents(pristine)


@pytest.mark.parametrize("told", [{"comment": b"built by hand"}, {"gap": b"?" * 9}, {"count": 1}])
def test_an_end_record_that_programs_read_differently(pristine: Path, tmp_path: Path, told: dict[str, object]) -> None:
    """A comment, a gap before the directory, or another count is refused or changes nothing."""
    path = write_zip(tmp_path / "a.zip", entries_of(pristine), **told)  # type: ignore[arg-type]
    try:
        (one,) = unpack(path, tmp_path / "out")
    except ArchiveError:
        assert not (tmp_path / "out").exists()
    else:
        assert contents(one.bundle.path) == contents(pristine)


def test_an_archive_that_lost_its_first_byte_is_refused(archive: Path, tmp_path: Path) -> None:
    """Its entries lie before the beginning of the file."""
    path = tmp_path / "a.zip"
    path.write_bytes(archive.read_bytes()[1:])
    refused(path)


def test_an_archive_within_the_comment_of_another(bundle: Path, pristine: Path, tmp_path: Path) -> None:
    """zipfile may read either of the two. A changed bundle is not unpacked."""
    (bundle / "record.json").write_bytes(b"{}")
    other = write_zip(tmp_path / "b.zip", entries_of(bundle)).read_bytes()[-60_000:]
    refused(write_zip(tmp_path / "a.zip", entries_of(bundle), comment=other))


def test_entries_within_entries_are_refused(tmp_path: Path) -> None:
    """Many names for one content are refused."""
    inner = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0x800, 0, 0, 33, zlib.crc32(b"x"), 1, 1, 1, 0) + b"cx"
    refused(write_zip(tmp_path / "a.zip", [Entry(b"a/b/c/d", inner), Entry(b"a/b/c/c", b"x", offset=37)]))


@pytest.mark.parametrize("content", [b"", b"PK\5\6", b"<html>" * 100])
def test_what_is_no_zip_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty file, a short one and another kind of file are refused."""
    (tmp_path / "a.zip").write_bytes(content)
    refused(tmp_path / "a.zip")


@pytest.mark.parametrize("tail", [b"x", b"PK\5\6", bytes(22)])
def test_data_after_the_end(pristine: Path, tmp_path: Path, tail: bytes) -> None:
    """Such data is refused, or changes nothing."""
    path = write_zip(tmp_path / "a.zip", entries_of(pristine), after=tail)
    try:
        (one,) = unpack(path, tmp_path / "out")
    except ArchiveError:
        assert not (tmp_path / "out").exists()
    else:
        assert contents(one.bundle.path) == contents(pristine)


def test_a_bomb_is_refused_before_it_is_extracted(
    pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MiB of zeros from 16 KiB are refused."""
    path = tmp_path / "a.zip"
    place = "/".join(pristine.parts[-3:])
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr(f"{place}/record.json", bytes(16 << 20))
    monkeypatch.setattr(unpacking, "_content", None)
    refused(path)


def test_a_bomb_that_declares_little_stops_at_what_it_declares(tmp_path: Path) -> None:
    """Only the declared size is extracted."""
    bomb = packed(Entry(b"DEMO-1/F-X-001/run/record.json", bytes(64 << 20)), size=1000)
    path = write_zip(tmp_path / "a.zip", [bomb])
    given_out: list[int] = []
    with ZipFile(path) as archive, pytest.raises(ArchiveError):
        given_out.extend(map(len, unpacking._content(archive, archive.infolist()[0])))
    assert sum(given_out) <= 1000
    refused(path)


def test_an_archive_with_a_hole_is_refused_by_its_size(tmp_path: Path) -> None:
    """A terabyte costs its maker nothing."""
    path = write_zip(tmp_path / "a.zip", [Entry(b"a")])
    os.truncate(path, 1 << 40)
    refused(path)


def test_a_directory_of_too_many_entries_is_refused(tmp_path: Path) -> None:
    """zipfile reads the whole directory at once, so this happens in a process with bounded memory."""
    path = tmp_path / "a.zip"
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 0x0314, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    count = 300_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFE, 0xFFFE, count * len(entry), 0, 0)
    path.write_bytes(entry * count + end)
    refused(path)


@SETTINGS
@given(content=st.binary(max_size=400))
def test_any_bytes_are_unpacked_or_refused(tmp_path: Path, content: bytes) -> None:
    """Any bytes are unpacked, or refused with the documented error."""
    path = tmp_path / "a.zip"
    path.write_bytes(content + b"PK\5\6")
    refused(path)
    path.write_bytes(content + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, min(46, len(content)), 0, 0))
    refused(path)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_link_in_the_target_leads_nowhere(tmp_path: Path, bundle: Path, depth: int) -> None:
    """A folder below the target that is a link refuses the archive with the link's path. Nothing is written there."""
    source = write_zip(tmp_path / "a.zip", entries_of(bundle))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path.joinpath("out", *bundle.parts[-3:][:depth])
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(OSError, match="symbolic link") as refused:
        unpack(source, tmp_path / "out")
    assert refused.value.filename == str(link)
    assert list(elsewhere.iterdir()) == []
    assert [path for path in (tmp_path / "out").rglob("*") if not path.is_dir()] == []


def test_an_archive_has_at_most_so_many_entries(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the limit of entries is accepted."""
    entries = [packed(one) for one in entries_of(bundle)]
    path = write_zip(tmp_path / "a.zip", entries)
    monkeypatch.setattr(unpacking, "MOST_ENTRIES", len(entries) - 1)
    refused(path)
    monkeypatch.setattr(unpacking, "MOST_ENTRIES", len(entries))
    assert unpack(path, tmp_path / "out")


def test_a_pipe_is_no_archive(tmp_path: Path) -> None:
    """Unpacking does not wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArchiveError, match="pipe"):
        unpack(tmp_path / "pipe", tmp_path / "out")
