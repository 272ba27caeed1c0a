"""Whole files from outside: only regular files of bounded size are read."""

from __future__ import annotations

import ast
import errno
import os
from pathlib import Path
from types import ModuleType

import pytest

import harness.contract
import harness.tools.trainer
from harness.base import regular_file


def test_a_file_and_a_link_to_it(tmp_path: Path) -> None:
    """A regular file is read, and so is a link to one: contracts of a copied project are links."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert regular_file.read(tmp_path / "link", 5) == b"12345"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("pipe", errno.EINVAL), ("folder", errno.EINVAL), ("zero", errno.EINVAL), ("itself", errno.ELOOP),
        ("large", errno.EFBIG), ("none", errno.ENOENT),
    ],
)  # fmt: skip
def test_everything_else_is_refused_at_once(tmp_path: Path, name: str, code: int) -> None:
    """The error names the path; nothing is read."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "large").write_bytes(b"123456")
    with pytest.raises(OSError, match=name) as refused:
        regular_file.read(tmp_path / name, 5)
    assert refused.value.errno == code


@pytest.mark.parametrize("package", [harness.contract, harness.tools.trainer], ids=lambda package: package.__name__)
def test_some_packages_read_in_no_other_way(package: ModuleType) -> None:
    """No module of these packages reads a file by itself."""
    (folder,) = package.__path__
    for path in Path(folder).glob("*.py"):
        called = {node.attr for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Attribute)}
        assert not called & {"read_bytes", "read_text", "open"}, path
