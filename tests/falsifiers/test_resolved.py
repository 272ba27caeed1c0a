"""The resolved device of each falsifier is the type of the device, which is what a contract requests."""

from __future__ import annotations

import re
from pathlib import Path

FALSIFIERS = Path(__file__).parents[2] / "falsifiers"


def test_no_falsifier_resolves_the_device_that_it_was_given() -> None:
    """A trial's device is "cuda:0" on a GPU, but a profile requests "cuda". On a CPU the two are the same."""
    wrong = re.compile(r"resolve\([^)]*device=trial\.device\s*[,)]")
    assert [path.name for path in FALSIFIERS.rglob("*.py") if wrong.search(path.read_text(encoding="utf-8"))] == []
