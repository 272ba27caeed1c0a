"""A probe's document as text."""

from __future__ import annotations

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.tools.probe.text import largest


@pytest.mark.parametrize(
    "sweeps", [{"batch": [1, 2]}, {"batch": [1, 2], "length": [8, 16]}, {}], ids=["one", "two", "none"]
)
def test_the_largest_that_fits_says_with_which_others(sweeps: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    batches, lengths = sweeps.get("batch", [1]), sweeps.get("length", [8])
    cases = [{"parameters": {"batch": batch, "length": length}} for batch in batches for length in lengths]
    found = {name: None if name == "length" else 1 for name in sweeps}
    assert largest({"largest_that_fits": found, "cases": cases}) == snapshot
