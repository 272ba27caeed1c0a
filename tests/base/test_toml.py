"""TOML with bounds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness.base import toml

HOSTILE = {
    "syntax": b"a = = 1",
    "not UTF-8": b'a = "\xff"',
    "deep lists": b"a = " + b"[" * 100_000,
    "deep tables": b"a = " + b"{b = " * 100_000,
    "a long dotted key": b"a." * 400_000 + b"b = 1",
    "many long dotted keys": b"".join(b"[q%d]\n" % i + b"a." * 900 + b"b = 1\n" for i in range(500)),
    "a huge integer": b"a = " + b"9" * 500_000,
    "two equal keys": b"a = 1\na = 2",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_are_refused(tmp_path: Path, content: bytes) -> None:
    """In seconds, whatever the text is."""
    file = tmp_path / "some.toml"
    file.write_bytes(content)
    before = time.process_time()
    with pytest.raises(toml.TomlError):
        toml.load(file)
    assert time.process_time() - before < 10


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    """Nor what is too large."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(toml.LARGEST + 1)
    for name in ("pipe", "zero", "large", "none", "."):
        with pytest.raises(OSError, match=r"."):
            toml.load(tmp_path / name)


def test_healthy_texts_are_read(tmp_path: Path) -> None:
    """A line may have some thousand dots."""
    (tmp_path / "some.toml").write_text("a.b = 1\nc = [" + "0.5, " * 3000 + "]\n")
    assert toml.load(tmp_path / "some.toml") == {"a": {"b": 1}, "c": [0.5] * 3000}
