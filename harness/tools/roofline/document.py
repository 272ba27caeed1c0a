"""Roofs, and a step's kernels under them, as one JSON document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from harness.tools.roofline.ceiling_cache import kept
from harness.tools.roofline.roofs import PeakTooLowError
from harness.tools.roofline.step import Kernel, placed, profiled

__all__ = ["document"]


def document(
    kind: str | None, again: bool, target: str | None, build: Callable[[], Callable[[], object]] | None
) -> dict[str, Any]:
    """Return what `harness roofline --json` writes, for the device of a kind; by default CUDA's, where there is one.

    Args:
        kind: "cuda" or "cpu".
        again: measure the roofs even if the cache has them.
        target: what names `build`, as MODULE:FUNCTION.
        build: builds what runs a step; None for the roofs alone.

    Raises:
        RooflineError: there is no such device, or the step ran nothing on it.
    """
    kind = kind or ("cuda" if torch.cuda.is_available() else "cpu")
    roofs = kept(kind, again=again)
    if build is None:
        return {**roofs.to_json(), "step": None}
    seconds, kernels = profiled(build(), kind)
    rows, above = [], []
    for kernel in kernels:
        try:
            place = asdict(placed(kernel, roofs))
        except PeakTooLowError as error:
            above.append({"name": kernel.name, "operator": kernel.operator, "error": str(error)})
            place = {"roof": None, "share": None, "unplaced": "above the measured peak"}
        rows.append({**_launch_record(kernel), **place})
    step = {"target": target, "seconds": seconds, "kernels": rows, "above_peak": above}
    return {**roofs.to_json(), "step": step}


def _launch_record(kernel: Kernel) -> dict[str, Any]:
    launches = {"name": kernel.name, "operator": kernel.operator, "calls": kernel.calls, "seconds": kernel.seconds}
    work = kernel.work
    amounts = (None, None, None) if work is None else (work.operations, work.bytes, work.dtype)
    return {**launches, **dict(zip(("operations", "bytes", "dtype"), amounts, strict=True))}
