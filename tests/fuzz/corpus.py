"""The hostile cases that are kept, one file each, in a folder for each format."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["cases"]

FOLDER = Path(__file__).parent / "corpus"


def cases(name: str) -> pytest.MarkDecorator:
    """Run a test with the bytes of each case of a format, as its argument `data`."""
    files = sorted(path for path in (FOLDER / name).iterdir() if path.is_file())
    assert files, f"{FOLDER / name} holds no case"
    return pytest.mark.parametrize("data", [path.read_bytes() for path in files], ids=[path.stem for path in files])
