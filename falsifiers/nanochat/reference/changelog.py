"""The figures of CHANGELOG_GB10.md at 8337c650."""

from __future__ import annotations

from typing import Any

from harness import Setting

__all__ = ["PublishedFigures"]


class PublishedFigures:
    """The figures as they are published."""

    def __init__(self, setting: Setting) -> None:
        """Nothing depends on the setting."""

    def figures(self) -> dict[str, Any]:
        """Return tokens a second, MB at the peak, TFLOP/s of pairs of GEMMs (NVFP4, BF16), and what is said of them."""
        return {
            "tokens_per_second": {"current": 14_455, "liger": 14_202, "triton": 16_950},
            "speedups": {"liger": 0.98, "triton": 1.17},
            "megabytes": {"current": 68_595, "liger": 65_939},
            "memory_saved": 0.60,
            "gemm_tflops": [(117, 87), (118, 96), (133, 98)],
            "gemm_gains": [1.34, 1.23, 1.36],
            "peak_tflops": 62,
            "split_percent": [0.3, 33, 67],
        }
