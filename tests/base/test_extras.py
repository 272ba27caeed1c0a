"""The command that installs an extra of the harness, by where the harness came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base import plugins as extras

ROOT = Path(__file__).parents[2]


def test_from_a_checkout() -> None:
    assert extras.installation("sign") == f"pip install '{ROOT}[sign]'"


def test_of_an_installed_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `site-packages`, the name is enough: pip takes the installed version."""
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "harness" / "base" / "plugins.py"))
    assert extras.installation("sign") == "pip install 'falsifier-harness[sign]'"
