"""The branch of analyze_bandwidth.py that decides what limits a work."""

from __future__ import annotations

from typing import Literal

from harness import Setting

__all__ = ["Ridge"]


class Ridge:
    """Compares a work's intensity with the ridge of the roofs."""

    def __init__(self, setting: Setting) -> None:
        """Nothing depends on the setting."""

    def bound(
        self, operations: float, moved: float, peak_operations: float, peak_bytes: float
    ) -> Literal["memory", "compute"]:
        """See `BoundAnalysis`."""
        return "compute" if operations / moved > peak_operations / peak_bytes else "memory"
