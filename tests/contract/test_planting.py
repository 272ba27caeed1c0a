"""The files in which defects were planted for a claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.contract.planting import planted_sources
from harness.contract.project import Project

ROOT = Path(__file__).parents[2]


def scores() -> Any:
    """One of this project's own files of scores, as data."""
    path = next(path for path in sorted(Project.find(ROOT).contracts.rglob("*planting.json")))
    return json.loads(path.read_text())


def test_the_digests_of_every_campaign(tmp_path: Path) -> None:
    """Each campaign of this claim has its digests. A broken file, and a claim with an obstacle, count as none."""
    document = scores()
    (one, *_) = (claim for claim in document["claims"] if claim["obstacle"] is None)
    claim = one["id"]
    assert planted_sources(tmp_path, claim) == {}
    first = {**document, "claims": [one], "sources": {"a.py": "a" * 64, "b.py": "b" * 64}}
    files = {
        "planting.json": first,
        "more.planting.json": {**first, "sources": {"a.py": "c" * 64, "d.py": "d" * 64}},
        "obstacle.planting.json": {**first, "claims": [{**one, "obstacle": "x"}], "sources": {"e.py": "e" * 64}},
        "other.planting.json": {**first, "claims": [{**one, "id": "F-OTHER-ONE-001"}], "sources": {"f.py": "f" * 64}},
        "wrong.planting.json": {**first, "sources": {"g.py": 1}},
        "planting.txt": {**first, "sources": {"h.py": "0" * 64}},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "a.planting.json").write_text("{")
    (tmp_path / "b.planting.json").mkdir()
    assert planted_sources(tmp_path, claim) == {
        "a.py": frozenset({"a" * 64, "c" * 64}),
        "b.py": frozenset({"b" * 64}),
        "d.py": frozenset({"d" * 64}),
    }
    assert planted_sources(tmp_path, "F-OTHER-ONE-001") == {"f.py": frozenset({"f" * 64})}
