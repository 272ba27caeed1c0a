"""The files in which defects were planted for a claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.contract.planting import planted_sources, results_of
from harness.contract.project import Project
from tests.contracts import put

ROOT = Path(__file__).parents[2]


def scores() -> Any:
    """One of this project's own files of scores, as data."""
    path = next(results_of(Project.find(ROOT).evidence, "apr"))
    return json.loads(path.read_text())


def test_the_digests_of_every_campaign(tmp_path: Path) -> None:
    """Each campaign of this claim has its digests. A broken file, and a claim with an obstacle, count as none."""
    document = scores()
    (one, *_) = (claim for claim in document["claims"] if claim["obstacle"] is None)
    claim = one["id"]
    assert planted_sources(tmp_path, "demo", claim) == {}
    first = {**document, "claims": [one], "sources": {"a.py": "a" * 64, "b.py": "b" * 64}}
    files = {
        "demo-1.json": first,
        "demo-more-1.json": {**first, "sources": {"a.py": "c" * 64, "d.py": "d" * 64}},
        "demo-obstacle-1.json": {**first, "claims": [{**one, "obstacle": "x"}], "sources": {"e.py": "e" * 64}},
        "demo-other-1.json": {**first, "claims": [{**one, "id": "F-OTHER-ONE-001"}], "sources": {"f.py": "f" * 64}},
        "demo-wrong-1.json": {**first, "sources": {"g.py": 1}},
        "demo-1.txt": {**first, "sources": {"h.py": "0" * 64}},
        "family-1.json": {**first, "sources": {"i.py": "0" * 64}},
    }
    for name, content in files.items():
        put(tmp_path / "planting" / name, json.dumps(content))
    put(tmp_path / "planting" / "demo-a-1.json", "{")
    (tmp_path / "planting" / "demo-b-1.json").mkdir()
    assert planted_sources(tmp_path, "demo", claim) == {
        "a.py": frozenset({"a" * 64, "c" * 64}),
        "b.py": frozenset({"b" * 64}),
        "d.py": frozenset({"d" * 64}),
    }
    assert planted_sources(tmp_path, "demo", "F-OTHER-ONE-001") == {"f.py": frozenset({"f" * 64})}
