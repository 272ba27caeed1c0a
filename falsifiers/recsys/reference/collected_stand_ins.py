"""A pytest plugin for collecting the source's tests with mocks of what they import, because no test runs.

The collected cases are written as JSON to the file that SOURCE_CASES names: by id, the values of the parameters.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest

CASES = "SOURCE_CASES"
_PACKAGES = ("commons", "configs", "fbgemm_gpu", "megatron", "modules", "ops", "test_utils", "torchrec")
"""Imports of the tests beside pytest, torch and the standard library."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a mock for each module of these packages."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in _PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return MagicMock(__path__=[], __name__=spec.name, __spec__=spec)

    def exec_module(self, module: ModuleType) -> None: ...


def pytest_configure() -> None:
    """Let the mocks take precedence over installed packages."""
    sys.meta_path.insert(0, _Finder())


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the cases that remain after every filter."""
    cases = {item.nodeid: _values(item) for item in session.items}
    Path(os.environ[CASES]).write_text(json.dumps(cases), encoding="utf-8")


def _values(item: pytest.Item) -> dict[str, str]:
    spec = getattr(item, "callspec", None)
    return {} if spec is None else {name: repr(value) for name, value in spec.params.items()}
