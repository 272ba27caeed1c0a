"""Writing the misbehaving project."""

from __future__ import annotations

import copy
import json
from pathlib import Path

from harness.project import Project
from tests.executors.misbehaving import CONTRACT, MODULE


def write_project(root: Path) -> Project:
    """A project with one healthy claim, and one whose falsifier cannot be imported."""
    (root / "pyproject.toml").write_text("[tool.harness]\n")
    (root / "toy").mkdir()
    (root / "toy" / "__init__.py").touch()
    (root / "toy" / "sorting.py").write_text(MODULE)
    (root / "toy" / "broken.py").write_text("falsify = None\nraise ImportError('no such library')\n")
    (root / "contracts").mkdir()
    broken = {**copy.deepcopy(CONTRACT), "id": "F-TOY-BROKEN-001", "falsifier": "toy.broken:falsify"}
    for contract in (CONTRACT, broken):
        (root / "contracts" / f"{contract['id']}.json").write_text(json.dumps(contract))
    return Project.find(root)
