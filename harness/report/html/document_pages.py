"""The documents of `harness probe` and `harness roofline` as pages: sections of sentences, tables and plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.base.strictjson import JsonObject
from harness.report.html.plot import Drawing, Figure, Form, Line, drawn
from harness.report.html.templating import page
from harness.report.terminal.printing import Table
from harness.report.terminal.probe_text import case_table, holders, largest, parameters, unmeasured
from harness.report.terminal.roofline_text import device_line, kernel_table, roof_notes, roof_table, seconds

__all__ = ["probe_page", "roofline_page"]

_GIB, _TERA = 1024.0**3, 1e12
Section = tuple[str, Sequence[str | Table | list[Drawing]]]
"""A title, and what stands below it. A text is a sentence without the full stop."""


def probe_page(document: JsonObject) -> str:
    """Return the page: the cases, and for each the memory over time, its peak, and what holds it."""
    device = document["device"]
    told = f"Memory predicted for {device['name']}. Verdicts allow for {100 * device['error']:.3g} % of error"
    overview: Section = ("Cases", [case_table(document), *(line[:1].upper() + line[1:] for line in largest(document))])
    cases = [_case(case, document["target"]) for case in document["cases"]]
    return _page(document["target"], "predicted memory", told, [overview, *cases])


def roofline_page(document: JsonObject) -> str:
    """Return the page: the roofs, and of a step the kernels under them and a table of the longest."""
    step = document["step"]
    roofs: Section = ("Roofs", [roof_table(document), *roof_notes(document)])
    if step is None:
        return _page(document["device"]["name"], "roofs", device_line(document), [roofs])
    errors = [
        f"error: {one['operator']}: {one['error']}. Measure the roofs again on a quiet machine"
        for one in step["above_peak"]
    ]
    kernels: Section = (
        f"Kernels of a step of {seconds(step['seconds'])}",
        [*errors, drawn(_kernels_under_roofs(document)), kernel_table(step)],
    )
    return _page(step["target"], "roofs", device_line(document), [kernels, roofs])


def _page(name: str, kind: str, statement: str, sections: Sequence[Section]) -> str:
    return page("document.html.j2", name=name, kind=kind, statement=statement, sections=sections)


def _case(case: JsonObject, target: str) -> Section:
    peak = Table([("peak", "where"), *((name, str(value)) for name, value in case["peak"].items() if value)])
    title, notes = parameters(case["parameters"]) or target, unmeasured([case])
    return title, [*notes, drawn([_memory(case)]), peak, *holders(case)]


def _memory(case: JsonObject) -> Figure:
    events = [float(at) for at, _, _ in case["timeline"]]
    lines = tuple(
        Line(name, events, [float(point[column]) for point in case["timeline"]])
        for column, name in ((1, "allocated"), (2, "reserved"))
    )
    return Figure("Memory", "GiB", "event", lines, divisor=_GIB)


def _kernels_under_roofs(document: JsonObject) -> Iterator[Figure]:
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
