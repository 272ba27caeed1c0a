"""Archives of bundles: any zip file is extracted below the folder, or refused."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from stat import S_ISREG

from hypothesis import given
from hypothesis import strategies as st

from harness.tools.merge.archive import ArchiveError, extract
from tests.evidence.conftest import archive, pristine
from tests.evidence.zips import Entry, write_zip
from tests.fuzz.corpus import cases
from tests.fuzz.damage import damaged, noise, numbers
from tests.fuzz.limits import bounded

__all__ = ["archive", "pristine"]

names = st.binary(max_size=8) | st.sampled_from(
    [
        b"a/F-A-B-001/r/record.json",
        b"a/F-A-B-001/r/MANIFEST.sha256",
        b"../a",
        b"/a",
        b"a//b",
        b"a/",
        b"a\0b",
        b"C:\\a",
        b"\xff",
    ]
)
small = st.none() | numbers.map(lambda number: number % 2**32)
entries = st.builds(
    Entry,
    name=names,
    data=st.binary(max_size=40),
    method=st.sampled_from([0, 8, 12, 14, 93, 99]),
    flags=st.sampled_from([0, 1, 8, 0x40, 0x800, 0x801, 0xFFFF]),
    attributes=st.sampled_from([0o100644 << 16, 0o120777 << 16, 0o40755 << 16, 0o10644 << 16, 0x10, 0]),
    extra=st.binary(max_size=12),
    local_name=st.none() | names,
    size=small,
    local_size=small,
    crc=small,
    offset=small,
)


def examine(path: Path) -> None:
    """Extract. Nothing lies beside the folder, and there are no links and no pipes in it."""
    into = path.parent / "into"
    into.mkdir()
    before = set(path.parent.iterdir())
    with bounded(seconds=10.0), contextlib.suppress(ArchiveError):
        extract(path, into)
    assert set(path.parent.iterdir()) == before
    assert all(path.is_dir() or S_ISREG(path.lstat().st_mode) for path in into.rglob("*"))
    shutil.rmtree(into)


@given(data=st.data())
def test_any_bytes_are_extracted_or_refused(archive: Path, folder: Path, data: st.DataObject) -> None:
    path = folder / "a.zip"
    written = data.draw(st.none() | st.lists(entries, max_size=4))
    if written is not None:
        write_zip(
            path, written, count=data.draw(small.map(lambda number: number if number is None else number % 2**16))
        )
    else:
        path.write_bytes(data.draw(damaged([archive.read_bytes()]) | noise(b"PK\3\4", b"PK\5\6")))
    examine(path)


@cases("archive")
def test_the_corpus(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(data)
    examine(tmp_path / "a.zip")
