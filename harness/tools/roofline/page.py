"""The document of `harness roofline` as a page."""

from __future__ import annotations

from collections.abc import Iterator

from harness.base.strictjson import JsonObject
from harness.tools.html.plot import Figure, Form, Line, drawn
from harness.tools.html.templating import Section, document_page
from harness.tools.roofline.text import device_line, kernel_table, roof_notes, roof_table, seconds

__all__ = ["roofline_page"]

_TERA = 1e12


def roofline_page(document: JsonObject) -> str:
    """Return the page: the roofs, and of a step the kernels under them and a table of the longest."""
    step = document["step"]
    roofs: Section = ("Roofs", [roof_table(document), *roof_notes(document)])
    if step is None:
        return document_page(document["device"]["name"], "roofs", device_line(document), [roofs])
    errors = [
        f"error: {operator['operator']}: {operator['error']}. Measure the roofs again on a quiet machine"
        for operator in step["above_peak"]
    ]
    kernels: Section = (
        f"Kernels of a step of {seconds(step['seconds'])}",
        [*errors, drawn(_kernels_under_roofs(document)), kernel_table(step)],
    )
    return document_page(step["target"], "roofs", device_line(document), [kernels, roofs])


def _kernels_under_roofs(document: JsonObject) -> Iterator[Figure]:
    """Yield for each dtype of products the kernels of that dtype under its roof."""
    roofs = document["roofs"]
    memory = max(roofs[name]["peak"] for name in ("copy", "read", "write"))
    for name in [roof for roof in roofs if roof.startswith("product ")]:
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
