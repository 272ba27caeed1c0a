"""Models for somebody else's trainer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.external.trainers import make_models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a teacher and a student for the small trainer."""
    folder = tmp_path_factory.mktemp("models")
    make_models(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path, models: Path) -> Path:
    """The same in a folder of the test's own."""
    for name in ("teacher", "student"):
        shutil.copy(models / f"{name}.pt", tmp_path)
    return tmp_path
