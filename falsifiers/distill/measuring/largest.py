"""The maximum of measurements."""

import math
from collections.abc import Iterable


def largest(numbers: Iterable[float]) -> float:
    """The largest number; NaN if one is NaN, which max() may drop, or if there is none.

    Raises:
        NotObserved: a number is hidden.
    """
    values = list(map(float, numbers))
    return max(values) if values and not any(map(math.isnan, values)) else math.nan
