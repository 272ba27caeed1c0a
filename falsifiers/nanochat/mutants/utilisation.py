"""Shares of a peak with one known defect each. The constants are those of the changelog and of trainers."""

from __future__ import annotations

from collections.abc import Mapping

from falsifiers.nanochat.reference.utilisation import MeasuredPeak

__all__ = [
    "AccumulationTwice",
    "ClippedAtOne",
    "ErrorForgotten",
    "FirstPeak",
    "NamedDevice",
    "NarrowestPeak",
    "StatedDenseH100",
    "StatedFp4",
    "StatedHalfH100",
]  # fmt: skip


class StatedDenseH100(MeasuredPeak):
    """The data sheet's 989 TFLOP/s of an H100, whatever the device."""

    def peak(self, dtype: str, device: str, peaks: Mapping[str, float]) -> float | None:
        """Return the constant."""
        return 989e12


class StatedHalfH100(MeasuredPeak):
    """495 TFLOP/s, which nanochat's code labels "H100 dense BF16"."""

    def peak(self, dtype: str, device: str, peaks: Mapping[str, float]) -> float | None:
        """Return the constant."""
        return 495e12


class StatedFp4(MeasuredPeak):
    """500 TFLOP/s, the FP4 rate of a GB10, as the denominator of BF16."""

    def peak(self, dtype: str, device: str, peaks: Mapping[str, float]) -> float | None:
        """Return the constant."""
        return 500e12


class NamedDevice(MeasuredPeak):
    """62 TFLOP/s if the name of the device contains GB10, whatever was measured."""

    def peak(self, dtype: str, device: str, peaks: Mapping[str, float]) -> float | None:
        """Look at the name first."""
        return 62e12 if "GB10" in device else super().peak(dtype, device, peaks)


class NarrowestPeak(MeasuredPeak):
    """The largest of all peaks, as if every product had the narrowest dtype."""

    def peak(self, dtype: str, device: str, peaks: Mapping[str, float]) -> float | None:
        """Forget the dtype."""
        return max(peaks.values())


class FirstPeak(MeasuredPeak):
    """The first peak of the table."""

    def peak(self, dtype: str, device: str, peaks: Mapping[str, float]) -> float | None:
        """Forget the dtype."""
        return next(iter(peaks.values()))


class ClippedAtOne(MeasuredPeak):
    """More than the peak is told as 100 %."""

    def mfu(
        self, operations: float, seconds: float, dtype: str, device: str, peaks: Mapping[str, float]
    ) -> float | None:
        """Clip."""
        peak = self.peak(dtype, device, peaks)
        return None if peak is None else min(operations / seconds / peak, 1.0)


class ErrorForgotten(MeasuredPeak):
    """More than the peak is told as such, 112 %."""

    def mfu(
        self, operations: float, seconds: float, dtype: str, device: str, peaks: Mapping[str, float]
    ) -> float | None:
        """Divide."""
        peak = self.peak(dtype, device, peaks)
        return None if peak is None else operations / seconds / peak


class AccumulationTwice(MeasuredPeak):
    """The operations are multiplied by eight micro-batches, which are in them already."""

    def mfu(
        self, operations: float, seconds: float, dtype: str, device: str, peaks: Mapping[str, float]
    ) -> float | None:
        """Multiply, and divide again if that is too much."""
        return super().mfu(operations * 8, seconds, dtype, device, peaks)
