"""Zip files that strangers made: one reading of each, or none."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.evidence import zip_reader
from harness.evidence.archive import ArchiveError
from tests.evidence.zips import Entry, write_zip

SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = b"the same line again\n" * 40


def deflated(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def packed(data: bytes = TEXT, **changes: object) -> Entry:
    """A deflated entry."""
    told = {"method": 8, "size": len(data), "crc": zlib.crc32(data), **changes}
    return Entry(b"a/b", deflated(data), **told)  # type: ignore[arg-type]


def read(path: Path) -> dict[str, bytes]:
    with path.open("rb") as file:
        return {one.name: b"".join(zip_reader.content(file, one)) for one in zip_reader.members(file)}


def refusal(path: Path) -> str:
    with pytest.raises(ArchiveError) as refused:
        read(path)
    return str(refused.value)


@SETTINGS
@given(
    files=st.dictionaries(st.text("abcé/日", min_size=1, max_size=8), st.binary(max_size=300), max_size=5),
    method=st.sampled_from([ZIP_STORED, ZIP_DEFLATED]),
)
def test_what_python_writes_is_read(tmp_path: Path, files: dict[str, bytes], method: int) -> None:
    """Whatever the names: judging those is another's business. A name that ends in a slash is a folder."""
    files = {name: data for name, data in files.items() if not name.endswith("/")}
    path = tmp_path / "a.zip"
    with ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    assert read(path) == files


def test_what_a_stream_writes_is_read(tmp_path: Path) -> None:
    """Its sizes stand after the content, with a signature; some writers leave that out."""
    path = tmp_path / "a.zip"
    reading, writing = os.pipe()
    with open(writing, "wb") as stream, ZipFile(stream, "w", ZIP_DEFLATED) as archive:
        archive.writestr("a", TEXT)
    with open(reading, "rb") as stream:
        path.write_bytes(stream.read())
    assert read(path) == {"a": TEXT}
    bare = struct.pack("<3L", zlib.crc32(TEXT), len(TEXT), len(TEXT))
    write_zip(path, [Entry(b"a", TEXT, flags=0x0808, descriptor=bare), Entry(b"b")])
    assert read(path) == {"a": TEXT, "b": b""}


def test_entries_may_lie_in_another_order_than_the_directory_has_them(tmp_path: Path) -> None:
    """As long as they fill the file."""
    assert read(write_zip(tmp_path / "a.zip", [Entry(b"b", b"1"), Entry(b"a", b"2")])) == {"b": b"1", "a": b"2"}


ZIP64 = struct.pack("<2HQ", 1, 8, 5)
CENTRAL = 30 + 3 + len(TEXT)
"""Where an entry named a/b with TEXT ends."""


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([Entry(b"a/b", TEXT, flags=0x0801)], "is encrypted"),
        ([Entry(b"a/b", TEXT, flags=0x0840)], "is encrypted"),
        ([Entry(b"a/b", TEXT, flags=0x2800)], "is encrypted"),
        ([Entry(b"a/b", TEXT, flags=0x0820)], "stored in a way"),
        ([Entry(b"a/b", TEXT, method=12)], "stored in a way that no archive of bundles needs (method 12)"),
        ([Entry(b"a/b", TEXT, needed=45)], "stored in a way"),
        ([Entry(b"a/b", TEXT, attributes=0o120777 << 16)], "is a link, a device or a pipe"),
        ([Entry(b"a/b", TEXT, attributes=0o020666 << 16)], "is a link, a device or a pipe"),
        ([Entry(b"a/b", TEXT, attributes=0o010666 << 16)], "is a link, a device or a pipe"),
        ([Entry(b"a/b", TEXT, attributes=0o040755 << 16)], "is a link, a device or a pipe"),
        ([Entry(b"a/", TEXT, attributes=0o040755 << 16)], "is a folder with content"),
        ([Entry(b"a/", b"", attributes=0o100644 << 16)], "is a link, a device or a pipe"),
        ([Entry(b"a/b", TEXT, comment=b"hello")], "has a comment"),
        ([Entry(b"a/b", TEXT, extra=ZIP64)], "zip64"),
        ([Entry(b"a/b", TEXT, local_extra=ZIP64)], "zip64"),
        ([Entry(b"a/b", TEXT, extra=struct.pack("<2H", 0x7075, 0))], "an extra field 0x7075"),
        ([Entry(b"a/b", TEXT, extra=struct.pack("<2H", 0x5455, 9) + b"12345")], "an extra field 0x5455"),
        ([Entry(b"a/b", TEXT, extra=b"UT")], "an extra field that breaks off"),
        ([Entry(b"a/b", TEXT, size=0xFFFFFFFF)], "zip64"),
        ([Entry(b"a/b", TEXT, offset=0xFFFFFFFF)], "zip64"),
        ([Entry(b"a/b", TEXT, local_name=b"a/c")], "described otherwise before its content"),
        ([Entry(b"a/b", TEXT, local_size=5)], "described otherwise before its content"),
        ([Entry(b"a/b", TEXT, flags=0x0808, descriptor=bytes(16))], "described otherwise after its content"),
        ([Entry(b"a/b", TEXT, flags=0x0808)], "described otherwise after its content"),
        ([Entry(b"a/b", TEXT, size=5)], "declares 5 bytes and has 800"),
        ([Entry(b"a/b", TEXT, crc=7)], "is damaged"),
        ([Entry("\u00e9".encode("cp437"), TEXT, flags=0)], "a name that is not ascii"),
        ([Entry(b"\xff\xfe", TEXT)], "a name that is not utf-8"),
        ([Entry(b"a/b", TEXT, before=b"MZ")], "bytes before it in no entry"),
        ([Entry(b"a/b", TEXT), Entry(b"c", before=b"hidden")], "bytes before it in no entry"),
        ([Entry(b"a/b", TEXT), Entry(b"a/b", TEXT, offset=0)], "overlaps another entry"),
        ([Entry(b"a/b", TEXT), Entry(b"c", offset=5)], "is not where the directory says"),
        ([Entry(b"a/b", TEXT), Entry(b"c", offset=1 << 31)], "breaks off"),
        ([packed(size=len(TEXT) - 1)], "has more than the 799 bytes that it declares"),
        ([packed(size=len(TEXT) + 1)], "has 800 of the 801 bytes that it declares"),
        ([Entry(b"a", deflated(TEXT)[:-3], method=8, size=800, crc=zlib.crc32(TEXT))], "breaks off"),
        ([Entry(b"a", deflated(TEXT) + b"x", method=8, size=800, crc=zlib.crc32(TEXT))], "bytes after the end of"),
        ([Entry(b"a", b"\xff" * 40, method=8, size=800)], "cannot be decompressed"),
    ],
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused(tmp_path: Path, entries: list[Entry], says: str) -> None:
    """And what no archive of bundles has."""
    assert says in refusal(write_zip(tmp_path / "a.zip", entries))


def test_entries_within_entries_are_refused(tmp_path: Path) -> None:
    """The quine and the bomb of overlapping files: one content, many names."""
    inner = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0x800, 0, 0, 33, zlib.crc32(b"x"), 1, 1, 1, 0) + b"cx"
    path = write_zip(tmp_path / "a.zip", [Entry(b"a", inner), Entry(b"c", b"x", offset=31)])
    body = path.read_bytes()
    # Cut out the second entry's own body, so that its header is only the one inside of the first.
    start = 31 + len(inner)
    end = struct.unpack("<4s4H2LH", body[-22:])
    fixed = struct.pack("<4s4H2LH", *end[:6], end[6] - 32, 0)
    path.write_bytes(body[:start] + body[start + 32 : -22] + fixed)
    assert "overlap" in refusal(path)


@pytest.mark.parametrize("tail", [b"x", b"PK\5\6", bytes(22)])
def test_data_after_the_end_is_refused(tmp_path: Path, tail: bytes) -> None:
    """Whoever appends, and whatever."""
    assert "does not end as a zip file" in refusal(write_zip(tmp_path / "a.zip", [Entry(b"a")], after=tail))


def test_a_comment_is_refused(tmp_path: Path) -> None:
    """Also one that looks like an end record, whose own comment is empty."""
    path = write_zip(tmp_path / "a.zip", [Entry(b"a")], comment=b"built by hand")
    assert "does not end as a zip file" in refusal(path)
    other = write_zip(tmp_path / "b.zip", [Entry(b"other")]).read_bytes()
    assert "bytes before, between or after" in refusal(write_zip(path, [Entry(b"a")], comment=other))


def test_bytes_before_the_directory_are_refused(tmp_path: Path) -> None:
    """Where a second directory, that of zip64 or a signing block would be."""
    assert "between its last entry and its directory" in refusal(
        write_zip(tmp_path / "a.zip", [Entry(b"a")], gap=b"?" * 9)
    )


def test_numbers_of_the_end_record_that_lie_are_refused(tmp_path: Path) -> None:
    """Before anything is read on their word."""
    path = tmp_path / "a.zip"
    assert "zip64" in refusal(write_zip(path, [Entry(b"a")], count=0xFFFF))
    assert "does not have the 2 entries" in refusal(write_zip(path, [Entry(b"a")], count=2))
    assert "has a directory of 94 bytes for 0 entries" in refusal(write_zip(path, [Entry(b"a"), Entry(b"b")], count=0))


def test_what_is_no_zip_file_is_refused(tmp_path: Path) -> None:
    """An empty file, a short one, another one."""
    path = tmp_path / "a.zip"
    for content in (b"", b"PK\5\6", b"<html>" * 100):
        path.write_bytes(content)
        assert "zip file" in refusal(path)


def test_a_bomb_is_refused_by_its_ratio_before_it_is_read(tmp_path: Path) -> None:
    """16 MiB of zeros from 16 KiB."""
    path = tmp_path / "a.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(16 << 20))
    with path.open("rb") as file, pytest.raises(ArchiveError, match="bombs do"):
        zip_reader.members(file)


def test_a_bomb_that_declares_little_stops_at_what_it_declares(tmp_path: Path) -> None:
    """No more than a piece of it is ever in memory."""
    data = bytes(64 << 20)
    path = write_zip(tmp_path / "a.zip", [packed(data, size=1000)])
    given_out: list[int] = []
    with path.open("rb") as file:
        (one,) = zip_reader.members(file)
        with pytest.raises(ArchiveError, match="more than the 1000 bytes"):
            given_out.extend(map(len, zip_reader.content(file, one)))
    assert sum(given_out) <= 1000


def test_an_archive_with_a_hole_is_refused_by_its_size(tmp_path: Path) -> None:
    """A terabyte costs its maker nothing."""
    path = write_zip(tmp_path / "a.zip", [Entry(b"a")])
    os.truncate(path, 1 << 40)
    assert "at most 1073741824" in refusal(path)


@SETTINGS
@given(content=st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    """Never another exception."""
    path = tmp_path / "a.zip"
    path.write_bytes(content + b"PK\5\6")
    refusal(path)
    path.write_bytes(content + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, min(46, len(content)), 0, 0))
    refusal(path)
