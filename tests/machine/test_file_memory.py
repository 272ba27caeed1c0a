"""Remembered results are valid only for an unchanged file, and only in the form in which they were written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.machine.cache_folder import cache_folder
from harness.machine.file_memory import FileMemory, keep, recall


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def lengths(root: Path, key: str = "") -> tuple[int, int]:
    """The number of bytes of root/file by a memory, and how often the file was read for it."""
    reads: list[str] = []

    def length(file: str) -> int:
        reads.append(file)
        return len(Path(file).read_bytes())

    memory = FileMemory("lengths", root, key)
    values = {memory.of(f"{root}/file", length) for _ in range(3)}
    memory.save()
    (value,) = values
    return value, len(reads)


def _same_size_and_time(file: Path) -> None:
    before = file.stat()
    file.write_text("ABC")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: list[Callable[[Path], object]] = [
    lambda file: file.write_text("longer"),
    _same_size_and_time,
    lambda file: file.with_name("other").write_text("x") and file.with_name("other").replace(file),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_is_read_once_until_it_changes(tmp_path: Path, change: Callable[[Path], object]) -> None:
    (tmp_path / "file").write_text("abc")
    assert [lengths(tmp_path), lengths(tmp_path), lengths(tmp_path, "other key")] == [(3, 1), (3, 0), (3, 1)]
    change(tmp_path / "file")
    assert lengths(tmp_path) == (len((tmp_path / "file").read_bytes()), 1)


def test_a_link_has_the_value_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("abc")
    (tmp_path / "file").symlink_to("target")
    assert [lengths(tmp_path), lengths(tmp_path)] == [(3, 1), (3, 0)]
    (tmp_path / "target").write_text("abcd")
    assert lengths(tmp_path) == (4, 1)


SPOILT: list[Callable[[bytes], bytes]] = [
    lambda whole: b"",
    lambda whole: whole[:-1],
    lambda whole: whole.replace(b"3]", b"4]"),
    lambda whole: b"[" * 100_000,
    lambda whole: b"\xff" + whole,
    lambda whole: whole.partition(b"\n")[2],
]


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_damaged_document_is_forgotten(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    (tmp_path / "file").write_text("abc")
    lengths(tmp_path)
    (document,) = cache_folder().iterdir()
    whole = document.read_bytes()
    assert spoil(whole) != whole
    document.write_bytes(spoil(whole))
    assert [lengths(tmp_path), lengths(tmp_path)] == [(3, 1), (3, 0)]
    assert document.read_bytes() == whole
    document.unlink()
    assert lengths(tmp_path) == (3, 1)


def test_a_document_of_another_project_or_kind_is_none(tmp_path: Path) -> None:
    keep("kind", tmp_path, "key", {"a": 1})
    places = [("kind", tmp_path, "key"), ("kind", tmp_path, ""), ("other", tmp_path, "key"), ("kind", Path("/"), "key")]
    assert [recall(*place) for place in places] == [{"a": 1}, None, None, None]


def test_without_a_cache_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("abc")
    monkeypatch.setenv("HARNESS_CACHE_DIR", "/dev/null/cache")
    assert [lengths(tmp_path), lengths(tmp_path)] == [(3, 1), (3, 1)]
    (tmp_path / "file").unlink()
    with pytest.raises(FileNotFoundError):
        lengths(tmp_path)


def test_a_document_of_many_bundles_is_recalled(tmp_path: Path) -> None:
    """The index of 10,000 bundles has 17 MB, more than a document that somebody else wrote may have."""
    keep("kind", tmp_path, "key", ["x" * 1_700] * 10_000)
    assert recall("kind", tmp_path, "key") == ["x" * 1_700] * 10_000
