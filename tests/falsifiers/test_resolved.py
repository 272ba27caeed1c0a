"""What falsifiers say that ran: the type of a device, which is all that a contract asks for."""

from __future__ import annotations

import re
from pathlib import Path

FALSIFIERS = Path(__file__).parents[2] / "falsifiers"


def test_no_falsifier_resolves_the_device_that_it_was_given() -> None:
    """A trial's device is "cuda:0" on a GPU, and a profile asks for "cuda": on a CPU the two are the same."""
    wrong = re.compile(r"resolve\([^)]*device=trial\.device\s*[,)]")
    assert [path.name for path in FALSIFIERS.rglob("*.py") if wrong.search(path.read_text(encoding="utf-8"))] == []
