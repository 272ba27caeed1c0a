"""The document of `harness probe` as an HTML page."""

from __future__ import annotations

from harness.base.strictjson import JsonObject
from harness.report.terminal.printing import Table
from harness.tools.html.plot import Figure, Line, drawn
from harness.tools.html.templating import Section, document_page
from harness.tools.probe.text import case_table, holders, largest, parameters, unmeasured

__all__ = ["probe_page"]

_GIB = 1024.0**3


def probe_page(document: JsonObject) -> str:
    """Return the page: the cases, and for each the memory over time, the peak, and the owners of the memory at the
    peak."""
    device = document["device"]
    note = f"Memory predicted for {device['name']}. Verdicts allow for {100 * device['error']:.3g} % of error"
    overview: Section = ("Cases", [case_table(document), *(line[:1].upper() + line[1:] for line in largest(document))])
    cases = [_case(case, document["target"]) for case in document["cases"]]
    return document_page(document["target"], "predicted memory", note, [overview, *cases])


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
