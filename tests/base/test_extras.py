"""The command that installs an extra of the harness, by where the harness came from."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.base import plugins as extras

ROOT = Path(__file__).parents[2]


def test_from_a_checkout() -> None:
    assert extras.installation("sign") == f"pip install '{ROOT}[sign]'"


@pytest.mark.parametrize(
    ("direct_url", "requirement"),
    [
        ({"url": "file:///home/me/a%20checkout", "dir_info": {}}, "/home/me/a checkout[sign]"),
        ({"url": "file:///tmp/harness.whl", "archive_info": {}}, "/tmp/harness.whl[sign]"),
        (
            {"url": "https://example.org/h.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "falsifier-harness[sign] @ git+https://example.org/h.git",
        ),
        (
            {"url": "https://example.org/h.whl", "archive_info": {}},
            "falsifier-harness[sign] @ https://example.org/h.whl",
        ),
        (None, "falsifier-harness[sign]"),
    ],
    ids=["folder", "wheel", "git", "web", "index"],
)
def test_of_an_installed_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct_url: dict[str, Any] | None, requirement: str
) -> None:
    """`site-packages` has the module and what pip wrote about the distribution."""
    module = tmp_path / "harness" / "base" / "extras.py"
    module.parent.mkdir(parents=True)
    module.write_text(Path(extras.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    about = tmp_path / "falsifier_harness-9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: falsifier-harness\nVersion: 9\n")
    if direct_url is not None:
        (about / "direct_url.json").write_text(json.dumps(direct_url))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    spec = importlib.util.spec_from_file_location("installed_extras", module)
    assert spec is not None
    assert spec.loader is not None
    installed = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, installed)
    spec.loader.exec_module(installed)
    assert installed.installation("sign") == f"pip install '{requirement}'"
