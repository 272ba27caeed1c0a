"""The figures of CHANGELOG_GB10.md at 8337c650, as the contract states them."""

from typing import Any

from harness import Setting


class PublishedFigures:
    """The published figures."""

    def __init__(self, setting: Setting) -> None:
        """Take the figures from the parameters; the contract binds each to its place in the document."""
        self._stated = setting.parameters

    def figures(self) -> dict[str, Any]:
        """Return tokens per second, peak MB, TFLOP/s of GEMMs and of peaks, and the stated conclusions."""
        stated = self._stated
        backends = stated["backends"]
        return {
            "tokens_per_second": dict(zip(backends, stated["rate_after_fix"], strict=True)),
            "speedups": dict(zip(backends, stated["speedup"], strict=True)),
            "megabytes": dict(zip(backends, stated["memory"], strict=True)),
            "memory_saved": stated["memory_saved_percent"] / 100,
            "gemm_tflops": list(zip(stated["gemm_nvfp4"], stated["gemm_bf16"], strict=True)),
            "gemm_gains": stated["gemm_speedup"],
            "peak_tflops": stated["peak_tflops"],
            "peak_nvfp4_tflops": stated["peak_nvfp4_tflops"],
            "peak_h100_tflops": stated["peak_h100_tflops"],
            "split_percent": stated["part_percent"],
        }
