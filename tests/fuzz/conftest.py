"""A folder that all examples of a test write to."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every example overwrites the files of the one before."""
    return tmp_path_factory.mktemp("fuzz")
