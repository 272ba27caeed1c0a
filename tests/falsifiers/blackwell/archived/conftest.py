"""Fixtures for external engines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from falsifiers.blackwell.archived import external
from tests.falsifiers.blackwell.archived.engines import (
    KERNELS,
    PROJECT,
    TARGETS,
    AnyGpu,
    library,
)


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore variables that the falsifier sets in this process. Entry points are relative to the project's root."""
    before = dict(os.environ)
    monkeypatch.chdir(PROJECT.root)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the falsifier see a GPU whose driver refuses PTX."""
    monkeypatch.setattr(external, "DeviceWatch", AnyGpu)
    monkeypatch.setattr(external, "see_that_ptx_is_refused", lambda: None)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with machine code of three kernels for both targets."""
    pytest.importorskip("cuda.bindings")
    from falsifiers.blackwell.reference.kernels.nvrtc import compile_kernel

    images = [compile_kernel(spec, sm).data for spec in KERNELS for sm in TARGETS]
    return library(tmp_path_factory.mktemp("code"), images)
