"""Reading a folder that is not trusted: each limit at, below and above it."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest

from harness.base.beneath import Beneath
from harness.evidence import untrusted
from harness.evidence.untrusted import Listing, TooLarge, digest, read, scan


def test_a_listing_has_files_refused_entries_and_empty_folders(tmp_path: Path) -> None:
    """The listing does not have the root, whether it is empty or not."""
    assert scan(tmp_path) == Listing()
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"12")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "a/link").symlink_to("b")
    os.mkfifo(tmp_path / "pipe")
    listing = scan(tmp_path)
    assert listing.files == {"file": 0, "a/b/file": 2}
    assert listing.refused == {"a/link": "is a symbolic link", "pipe": "is a pipe, a socket or a device"}
    assert sorted(listing.empty) == ["a/b/c", "empty"]


def test_what_cannot_be_read_does_not_hide_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that was replaced by a link is refused by its name, and the rest is listed."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    real = Beneath.entries

    def replaced(folder: Beneath, most: int | None = None) -> list[tuple[str, os.stat_result]]:
        result = real(folder, most)
        if not folder.name:
            (tmp_path / "b").rename(tmp_path.parent / "elsewhere")
            (tmp_path / "b").symlink_to(tmp_path.parent / "elsewhere")
        return result

    monkeypatch.setattr(Beneath, "entries", replaced)
    listing = scan(tmp_path)
    assert sorted(listing.files) == ["a/file", "c/file"]
    assert list(listing.refused) == ["b"]
    assert listing.refused["b"].startswith("cannot be read: ")
    assert listing.empty == []


@pytest.mark.parametrize(
    ("limit", "value", "says"),
    [
        ("MOST_ENTRIES", 5, "holds more than 4 files and folders"),
        ("DEEPEST", 2, "has folders more than 1 deep"),
        ("LARGEST_BUNDLE", 30, "has 30 bytes; a bundle has at most 29"),
    ],
)
def test_a_limit_is_the_largest_that_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, says: str
) -> None:
    """The limits are five entries, folders two deep, and 30 bytes in two files."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    for name in ("a/b/one", "two"):
        (tmp_path / name).write_bytes(b"x" * 15)
    for more in (1, 0):
        monkeypatch.setattr(untrusted, limit, value + more)
        assert len(scan(tmp_path).files) == 2
    monkeypatch.setattr(untrusted, limit, value - 1)
    with pytest.raises(TooLarge) as refused:
        scan(tmp_path)
    assert str(refused.value) == says


@pytest.mark.parametrize("most", [10, 11])
def test_a_document_is_as_large_as_its_limit_and_no_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(untrusted, "LARGEST_DOCUMENT", most)
    for size in (0, 1, most - 1, most):
        content = bytes(range(size))
        (tmp_path / "one").write_bytes(content)
        assert read(tmp_path, "one") == (content, hashlib.sha256(content).hexdigest())
    (tmp_path / "one").write_bytes(bytes(most + 1))
    with pytest.raises(TooLarge) as refused:
        read(tmp_path, "one")
    assert str(refused.value) == f"has more than {most} bytes"


def test_a_file_is_as_large_as_a_bundle_and_no_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pieces count, and each is copied in its place."""
    monkeypatch.setattr(untrusted, "CHUNK", 4)
    monkeypatch.setattr(untrusted, "LARGEST_BUNDLE", 10)
    (tmp_path / "one").write_bytes(b"0123456789")
    copy = io.BytesIO()
    assert digest(tmp_path, "one", copy) == hashlib.sha256(b"0123456789").hexdigest()
    assert copy.getvalue() == b"0123456789"
    (tmp_path / "one").write_bytes(b"0123456789A")
    with pytest.raises(TooLarge) as refused:
        digest(tmp_path, "one")
    assert str(refused.value) == "has more than 10 bytes"
