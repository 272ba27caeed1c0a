"""Paths beneath a root: no link below it is followed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.base.beneath import Beneath


def test_files_are_written_and_read(tmp_path: Path) -> None:
    """The root may be a link. Folders are made, files are created once, renamed and read."""
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real", target_is_directory=True)
    place = Beneath(tmp_path / "root", "a/b")
    place.make_folder()
    place.make_folder()
    with (place / "file").create() as file:
        file.write(b"content")
    with pytest.raises(FileExistsError):
        (place / "file").create()
    (place / "file").rename(Beneath(tmp_path / "root", "a/other"))
    with Beneath(tmp_path / "root", "a/other").opened() as file:
        assert file.read() == b"content"
    assert (tmp_path / "real" / "a" / "other").exists()
    assert ((place / "file").status(), place.parent.last) == (None, "a")


@pytest.mark.parametrize("link", ["a", "a/b"])
def test_no_link_is_followed(tmp_path: Path, link: str) -> None:
    """Every operation beneath a link is refused, and the error names the link."""
    (tmp_path / "outside" / "b").mkdir(parents=True)
    (tmp_path / "outside" / "b" / "file").write_text("secret")
    root = tmp_path / "root"
    (root / link).parent.mkdir(parents=True)
    (root / link).symlink_to(tmp_path / "outside" / ("b" if link == "a/b" else ""), target_is_directory=True)
    place = Beneath(root, "a/b")
    (root / "new").touch()
    actions = (
        place.make_folder,
        (place / "file").opened,
        (place / "file").status,
        (place / "new").create,
        lambda: Beneath(root, "new").rename(place / "new"),
        lambda: place.folder().__enter__(),
    )
    for action in actions:
        with pytest.raises(OSError, match="symbolic link") as refused:
            action()
        assert (refused.value.errno, refused.value.filename) == (errno.ELOOP, str(root / link))
    assert sorted(path.name for path in (tmp_path / "outside").rglob("*")) == ["b", "file"]


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A link, a pipe and a folder are refused at once."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("pipe", "link", ""):
        with pytest.raises((OSError, ValueError)):
            Beneath(tmp_path, name).opened()


@pytest.mark.parametrize("name", ["..", "a/../b", "/a", "a//b", ".", "a\0"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    """Only plain relative names are beneath a root."""
    with pytest.raises(ValueError, match="plain relative name"):
        Beneath(tmp_path, name)
