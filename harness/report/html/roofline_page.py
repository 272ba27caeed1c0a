"""Roofs, and a step's kernels under them, as a page."""

from __future__ import annotations

from collections.abc import Iterator

from harness.base.strictjson import JsonObject
from harness.report.html.plot import Figure, Form, Line, drawn
from harness.report.html.templating import page
from harness.report.roofline_text import device_line, kernel_rows, roof_rows, seconds

__all__ = ["roofline_page"]

_TERA = 1e12


def roofline_page(document: JsonObject) -> str:
    """Return the page: the roofs, and of a step the kernels under them and a table of the longest."""
    step = document["step"]
    return page(
        "roofline.html.j2",
        document=document,
        device=device_line(document),
        launch=seconds(document["launch_seconds"]),
        roofs=list(roof_rows(document)),
        step_seconds=seconds(step["seconds"]) if step else "",
        kernels=list(kernel_rows(step["kernels"])) if step else [],
        figures=drawn(_figures(document)) if step else [],
    )


def _figures(document: JsonObject) -> Iterator[Figure]:
    """Yield for each dtype of products the kernels of that dtype under its roof."""
    roofs = document["roofs"]
    memory = max(roofs[name]["peak"] for name in ("copy", "read", "write"))
    for name in [one for one in roofs if one.startswith("product ")]:
        dtype = name.removeprefix("product ")
        points = sorted(
            (kernel["operations"] / kernel["bytes"], kernel["operations"] / kernel["seconds"])
            for kernel in document["step"]["kernels"]
            if kernel["roof"] and (kernel["dtype"] == dtype or kernel["roof"] == name) and kernel["operations"]
        )
        if not points:
            continue
        peak = roofs[name]["peak"]
        ridge = peak / memory
        ends = [min(points[0][0], ridge / 10), ridge, max(points[-1][0], ridge * 10)]
        roof = Line("roof", ends, [min(peak, at * memory) for at in ends])
        under = Line("kernels", [at for at, _ in points], [done for _, done in points], Form.POINTS)
        yield Figure(f"Kernels in {dtype}", "Top/s", "operations a byte", (roof, under), _TERA, 240, powers=True)
