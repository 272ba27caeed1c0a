"""The fake driver, compiled once."""

from __future__ import annotations

import pytest

from tests.tools.recorder.fakes import Fakes


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Fakes:
    return Fakes(tmp_path_factory.mktemp("fakes"))
