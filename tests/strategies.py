"""Hypothesis strategies that the tests share."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from tests.contracts import healthy

__all__ = ["broken_numbers", "json_values", "measurements", "scalars"]

_ODD = (0, -1, 1.0, 2**53 + 1, 10**308, 10**400, -(10**400), 1e308, "", "3", True, None, [], {}, {"nonfinite": "NaN"})

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(_ODD)
"""Every kind of value that has no others inside, numbers that are not finite included."""

json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
"""Measurements of a falsifier: JSON, and numbers that are not finite."""

broken_numbers = st.sampled_from([math.nan, math.inf, -math.inf, 10**400, -(10**400), {"nonfinite": "NaN"}])
"""Numbers that must never pass: not finite, or too large for a double."""

measurements: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda changed, left_out: {name: value for name, value in {**healthy(), **changed}.items() if name not in left_out},
    st.dictionaries(st.sampled_from([*healthy(), "undeclared"]), json_values, max_size=3),
    st.sets(st.sampled_from(sorted(healthy())), max_size=2),
)
"""Measurements for the contract of `tests.contracts`: healthy ones, with some replaced and some missing."""
