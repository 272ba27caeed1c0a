"""A probe's document as a page."""

from __future__ import annotations

from harness.base.strictjson import JsonObject
from harness.report.html.plot import Figure, Line, drawn
from harness.report.html.templating import page
from harness.report.number_text import binary
from harness.report.probe_text import largest, modules, parameters

__all__ = ["probe_page"]

_GIB = 1024.0**3


def probe_page(document: JsonObject) -> str:
    """Return the page: the cases, and for each the memory over time, its peak, and what holds it."""
    cases = [
        {
            "title": parameters(case["parameters"]) or document["target"],
            "fit": case["fit"],
            "unmeasured": case["unmeasured"],
            "allocated": binary(case["allocated"]),
            "reserved": binary(case["reserved"]),
            "capacity": binary(case["capacity"]),
            "figures": drawn([_figure(case)]),
            "peak": [(name, value) for name, value in case["peak"].items() if value],
            "tables": [
                (name, [(part, binary(size)) for part, size in rows if size])
                for name, rows in (("owner", [*case["by_owner"].items()]), ("module", modules(case["by_module"])))
            ],
        }
        for case in document["cases"]
    ]
    shown = [[case[name] for name in ("title", "allocated", "reserved", "capacity", "fit")] for case in cases]
    return page("probe.html.j2", document=document, cases=cases, shown=shown, largest=largest(document))


def _figure(case: JsonObject) -> Figure:
    events = [float(at) for at, _, _ in case["timeline"]]
    lines = tuple(
        Line(name, events, [float(point[column]) for point in case["timeline"]])
        for column, name in ((1, "allocated"), (2, "reserved"))
    )
    return Figure("Memory", "GiB", "event", lines, divisor=_GIB)
