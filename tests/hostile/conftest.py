"""A world for each test, copied from one that is made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.hostile.world import World, made_world, skip_unless


@pytest.fixture(scope="session")
def healthy_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world of which tests get copies."""
    return made_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(healthy_world: World, tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """A healthy world to change."""
    if "quick" in request.fixturenames:
        skip_unless(request.getfixturevalue("quick"))
    return World(shutil.copytree(healthy_world.folder, tmp_path / "world", symlinks=True))
