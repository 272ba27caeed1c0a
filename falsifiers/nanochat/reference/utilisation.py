"""The share of a device's speed that steps reach."""

from __future__ import annotations

from collections.abc import Mapping

from harness import Setting

__all__ = ["MeasuredPeak"]


class MeasuredPeak:
    """The peak is what products of that dtype reach on that device, as measured beside the steps."""

    def __init__(self, setting: Setting) -> None:
        """Nothing depends on the setting."""

    def mfu(
        self, operations: float, seconds: float, dtype: str, device: str, peaks: Mapping[str, float]
    ) -> float | None:
        """See `Utilisation`."""
        achieved, peak = operations / seconds, peaks.get(dtype)
        return None if peak is None or achieved > peak else achieved / peak
