"""The branch of analyze_bandwidth.py that decides whether memory or compute is the limit."""

from typing import Literal

from harness import Setting


class Ridge:
    """Compares arithmetic intensity with the ridge point of the roofline. See `BoundAnalysis`."""

    def __init__(self, setting: Setting) -> None: ...

    def bound(
        self, operations: float, moved: float, peak_operations: float, peak_bytes: float
    ) -> Literal["memory", "compute"]:
        return "compute" if operations / moved > peak_operations / peak_bytes else "memory"
