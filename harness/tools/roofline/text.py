"""Roofs, and a step's kernels under them, as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.base.shortening import cut
from harness.base.strictjson import JsonObject
from harness.report.terminal.printing import Block, Table

__all__ = ["device_line", "kernel_table", "roof_notes", "roof_table", "roofline_lines", "seconds"]

_MOST_KERNELS = 20
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_LONGEST_NAME = 44


def roofline_lines(document: JsonObject) -> Iterator[Block]:
    """Yield the roofs as a table, then the kernels of the step, longest first."""
    yield device_line(document)
    yield roof_table(document)
    yield from (f"  {note}" for note in roof_notes(document))
    step = document["step"]
    if step is None:
        return
    busy = sum(kernel["seconds"] for kernel in step["kernels"])
    yield ""
    yield f"{step['target']}: {seconds(step['seconds'])} a step, {seconds(busy)} in kernels"
    yield kernel_table(step)
    rest = len(step["kernels"]) - _MOST_KERNELS
    if rest > 0:
        yield f"  and {rest} shorter ones; --json has all"
    for operator in step["above_peak"]:
        yield f"error: {operator['operator']}: {operator['error']}; measure the roofs with --again on a quiet machine"


def device_line(document: JsonObject) -> str:
    """Return the device, what drives it, and its clocks."""
    device = document["device"]
    clocks = ", ".join(f"{name} {value:g}" for name, value in document["clocks"]["after"].items())
    text = f"{device['name']}, driver {device['driver']}, torch {device['torch']}"
    return f"{text}; {clocks}" if clocks else text


def roof_table(document: JsonObject) -> Table:
    """Return each roof with its peak, its median and the arm that reached it."""
    return Table([("roof", "peak", "median", "reached by"), *_roof_rows(document)])


def roof_notes(document: JsonObject) -> Iterator[str]:
    """Yield the time of a launch, and why a roof is missing."""
    yield f"one launch after another: {seconds(document['launch_seconds'])}"
    for name, why in document["missing"].items():
        yield f"{name}: not measured, {why}"


def kernel_table(step: JsonObject) -> Table:
    """Return the longest kernels of a step, each with its share of its roof."""
    return Table([("kernel", "calls", "time", "rate", "of roof"), *_kernel_rows(step["kernels"])])


def _roof_rows(document: JsonObject) -> Iterator[tuple[str, ...]]:
    for name, roof in document["roofs"].items():
        unit = "op/s" if name.startswith(("product", "zeros")) else "B/s"
        yield name, _rate(roof["peak"], unit), _rate(roof["median"], unit), roof["arm"]


def _kernel_rows(kernels: Sequence[JsonObject]) -> Iterator[tuple[str, ...]]:
    for kernel in kernels[:_MOST_KERNELS]:
        name = cut(kernel["operator"].removeprefix("aten::") or kernel["name"], _LONGEST_NAME)
        if kernel["roof"] is None:
            yield name, str(kernel["calls"]), seconds(kernel["seconds"]), "-", kernel["unplaced"]
            continue
        amount, unit = ("operations", "op/s") if kernel["roof"].startswith("product") else ("bytes", "B/s")
        achieved = _rate(kernel[amount] / kernel["seconds"], unit)
        share = f"{100 * kernel['share']:.0f} % of {kernel['roof']}"
        yield name, str(kernel["calls"]), seconds(kernel["seconds"]), achieved, share


def _rate(value: float, unit: str) -> str:
    """Return a rate with a decimal prefix, such as 4.12 TB/s."""
    for size, prefix in _PREFIXES:
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def seconds(value: float) -> str:
    """Return a time in s, ms or µs."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"
