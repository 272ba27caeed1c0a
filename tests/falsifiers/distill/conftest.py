"""Tests here use one thread. The folder also has models for an external trainer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.tools.trainer.trainers import make_models


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take ten times as long as one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a teacher and a student for the small trainer."""
    folder = tmp_path_factory.mktemp("models")
    make_models(folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path, models: Path) -> Path:
    """A copy of that folder for one test."""
    for name in ("teacher", "student"):
        shutil.copy(models / f"{name}.pt", tmp_path)
    return tmp_path
