"""The share of a device's peak rate that steps reach."""

from collections.abc import Mapping

from harness import Setting


class MeasuredPeak:
    """The peak is the rate of products in that dtype, measured on that device beside the steps. See `Utilisation`."""

    def __init__(self, setting: Setting) -> None: ...

    def mfu(
        self, operations: float, seconds: float, dtype: str, device: str, peaks: Mapping[str, float]
    ) -> float | None:
        achieved, peak = operations / seconds, peaks.get(dtype)
        return None if peak is None or achieved > peak else achieved / peak
