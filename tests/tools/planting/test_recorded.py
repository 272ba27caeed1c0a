"""The recorded planting results of this repository: authors' entries and campaigns."""

from __future__ import annotations

import json
from pathlib import Path

from harness.base.schemas import problems
from harness.contract.equivalent import equivalents
from harness.contract.planting import PLANTING
from harness.contract.project import Project
from harness.tools.planting.defects import Subjects

PROJECT = Project.find(Path(__file__).parent)


def test_every_entry_still_names_a_defect() -> None:
    """If its source line has changed, an entry must be removed or changed."""
    subjects = Subjects(PROJECT.root)
    entries = [(path.parent.name, entry) for path in PROJECT.files() for entry in equivalents(path)]
    gone = [(claim, entry.file, entry.before) for claim, entry in entries if not subjects.is_matched(entry)]
    assert (gone, len(entries) > 0) == ([], True)


def test_recorded_campaigns_have_their_format() -> None:
    """`verify` would ignore a result that it cannot read."""
    for path in (PROJECT.evidence / PLANTING).iterdir():
        assert problems("planting", json.loads(path.read_bytes())) == [], path
