"""Writing files: all or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.scaffold import render, write_all


def test_everything_is_taken_back(tmp_path: Path) -> None:
    """After a failure, new files are gone and extended files have their old end."""
    old = tmp_path / "old.toml"
    old.write_bytes(b"first\r\n")
    additions = {old: "second\n", tmp_path / "missing.toml": "third\n"}
    with pytest.raises(FileNotFoundError):
        write_all({tmp_path / "a" / "b" / "new.txt": "new\n"}, additions)
    assert [path.name for path in tmp_path.iterdir()] == ["old.toml"]
    assert old.read_bytes() == b"first\r\n"


def test_a_template_without_a_value_is_refused() -> None:
    """No file is written with a placeholder in it."""
    with pytest.raises(KeyError, match="id"):
        render("falsifier.py.template")
