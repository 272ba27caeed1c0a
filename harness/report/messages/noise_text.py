"""A measurement compared with those of earlier runs, in words."""

from __future__ import annotations

import math

from harness.evidence.measurement_history import FEWEST, Shift
from harness.report.messages import number_text

__all__ = ["change", "earlier", "shift"]


def earlier(count: int, middle: float, scatter: float, unit: str) -> str:
    """Return the median, the scatter and the number of the earlier values."""
    if not count:
        return "none"
    if unit == "B":
        return f"{number_text.binary(middle)} ± {number_text.binary(scatter)} of {count}"
    return f"{middle:.6g} ± {scatter:.2g} of {count}"


def shift(found: Shift | None, count: int) -> str:
    """Return how a value compares with `count` earlier ones. Empty without a value."""
    if found is None:
        return ""
    if found is Shift.UNKNOWN:
        return f"too few to tell ({count} of {FEWEST})"
    return str(found) if found is Shift.NOT_FINITE else f"{found} the noise"


def change(before: float | None, after: float | None) -> str:
    """Return the change in percent, or as a difference if `before` is 0. Empty unless both values are finite."""
    if before is None or after is None or not (math.isfinite(before) and math.isfinite(after)):
        return ""
    return f"{(after - before) / abs(before):+.1%}" if before else f"{after - before:+.3g}"
