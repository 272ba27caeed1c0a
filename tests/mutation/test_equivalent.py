"""The mutants that no test can kill."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_is_of_a_line_that_there_is() -> None:
    """Each entry names an existing line, has a reason, and occurs once.

    An entry for a changed line explains nothing.
    """
    entries = json.loads(Path(__file__).with_name("equivalent.json").read_text())
    seen = {(entry["module"], entry["before"], entry["after"]) for entry in entries}
    assert len(seen) == len(entries)
    for entry in entries:
        lines = [line.strip() for line in (ROOT / entry["module"]).read_text().splitlines()]
        assert {line.strip() for line in entry["before"].strip().splitlines()} <= set(lines), entry
        assert entry["before"] != entry["after"]
        assert entry["reason"].endswith(".")
