"""The plots of a trial: its step series, its lists of numbers, and the telemetry of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from harness.contract import Contract
from harness.contract.clauses import ITEM, is_finite
from harness.contract.keywords import is_number
from harness.evidence.bundle import Series
from harness.tools.html.contents import Contents
from harness.tools.html.plot import Figure, Form, Line

__all__ = ["SIGNS", "figure", "is_finite_number", "machine", "samples", "training"]

SIGNS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "const": "="}
"""The sign between value and limit of each keyword that compares numbers."""

_STEP, _SECONDS = "step", "seconds"
_MOST_COLUMNS, _MOST_SAMPLES = 12, 12
_FEWEST_SAMPLES = 8
"""Fewer samples are shown as numbers only."""
_SUFFIXES: Final = {
    "_per_second": "/s",
    "_bytes": "B",
    "_percent": "%",
    "_watts": "W",
    "_celsius": "°C",
    "_mhz": "MHz",
    "_seconds": "s",
    "_ms": "ms",
    "_us": "µs",
    "_nats": "nats",
}
"""The unit of a column, by the end of its name."""
_MACHINE: Final = (
    ("GPU memory", "B", {"gpu_process_memory_bytes": "the trial", "gpu_memory_used_bytes": "all processes"}),
    ("Host memory", "B", {"rss_bytes": "the trial"}),
    ("GPU utilisation", "%", {"gpu_utilisation_percent": "GPU"}),
    ("CPU, 100 % a core", "%", {"cpu_percent": "the trial"}),
    ("GPU power", "W", {"gpu_power_watts": "power"}),
    ("GPU temperature", "°C", {"gpu_temperature_celsius": "temperature"}),
    ("GPU clock", "MHz", {"gpu_sm_clock_mhz": "multiprocessors"}),
)


def training(contents: Contents) -> Iterator[Figure]:
    """Yield a plot for each column of the step series, and one for the duration of the steps."""
    series = contents.metrics
    steps = _axis(series, _STEP)
    if not steps:
        return
    lists = contents.observation.measurements.items() if contents.observation else ()
    names = [name for name in series.columns if name not in (_STEP, _SECONDS)]
    for name in names[:_MOST_COLUMNS]:
        values = series.columns[name]
        if any(value is not None for value in values):
            title, unit = _named(name, contents.contract)
            same = [other for other, numbers in lists if numbers == [*values]]
            yield figure(title, unit, "step", [Line(title, steps, values), *_bounds(contents.contract, [name, *same])])
    stamps = series.columns.get(_SECONDS, ())
    took = [
        None if before is None or after is None or step <= last else (after - before) / (step - last)
        for (last, before), (step, after) in pairwise(zip(steps, stamps, strict=False))
    ]
    if sum(value is not None for value in took) > 1:
        yield figure("Time a step", "s", "step", [Line("time a step", steps[1:], took)])


def machine(series: Series) -> Iterator[Figure]:
    """Yield the plots of the telemetry, which another process sampled during the trial."""
    seconds = _axis(series, _SECONDS)
    for title, unit, columns in _MACHINE if len(seconds) > 1 else ():
        lines = [
            Line(label, seconds, series.columns[name])
            for name, label in columns.items()
            if any(value is not None for value in series.columns.get(name, ()))
        ]
        if lines:
            yield figure(title, unit, "seconds since the trial's start", lines)


def samples(contents: Contents) -> Iterator[Figure]:
    """Yield a plot for each measurement that is a list of numbers, unless a column has the same numbers.

    The numbers are independent cases, unless there are as many as steps.
    """
    contract, observation = contents.contract, contents.observation
    known = [list(column) for column in contents.metrics.columns.values()]
    steps = _axis(contents.metrics, _STEP)
    shown = 0
    for name, values in (observation.measurements if observation else {}).items():
        if shown < _MOST_SAMPLES and _is_samples(values) and values not in known:
            shown += 1
            by_step = len(values) == len(steps)
            places, form = (steps, Form.LINE) if by_step else (range(1, len(values) + 1), Form.POINTS)
            line = Line(_words(name), places, [float(value) for value in values], form)
            label = "step" if by_step else "case"
            yield figure(_words(name), _unit(name, contract), label, [line, *_bounds(contract, [name])])


def figure(title: str, unit: str, x_label: str, lines: Sequence[Line], height: int = 190) -> Figure:
    """Return a figure. Bytes are shown in the binary unit that suits the largest."""
    divisor = 1.0
    if unit == "B":
        largest = max((y for line in lines for _, y in line.finite()), default=0.0)
        sizes = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
        divisor, unit = next((size for size in sizes if largest >= size[0]), (1.0, "B"))
    return Figure(title, unit, x_label, tuple(lines), divisor, height)


def _bounds(contract: Contract | None, names: Sequence[str]) -> Iterator[Line]:
    """Yield the bounds on the items of these lists. One that forbids negative numbers only says what kind they are."""
    places = [(name, ITEM) for name in names]
    for clause in contract.clauses if contract else ():
        is_sign = clause.keyword == "minimum" and clause.argument == 0
        if clause.path in places and clause.keyword in SIGNS and is_finite_number(clause.argument) and not is_sign:
            yield Line(f"bound {SIGNS[clause.keyword]}", [0.0], [float(clause.argument)], Form.BOUND)


def is_finite_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return is_number(value) and is_finite(value)


def _is_samples(values: Any) -> bool:
    return isinstance(values, list) and len(values) >= _FEWEST_SAMPLES and all(map(is_number, values))


def _axis(series: Series, name: str) -> list[float]:
    """Return a column if it has a number in every row, else an empty list."""
    column = series.columns.get(name, ())
    values = [value for value in column if value is not None and abs(value) < 1e15]
    return values if len(values) == len(column) else []


def _named(name: str, contract: Contract | None) -> tuple[str, str]:
    """Return the title and unit of a column."""
    for suffix, unit in _SUFFIXES.items():
        if name.endswith(suffix) and name != suffix:
            base = name.removesuffix(suffix)
            return (f"{_words(base)} per second", f"{base}/s") if unit == "/s" else (_words(base), unit)
    return _words(name), _unit(name, contract)


def _unit(name: str, contract: Contract | None) -> str:
    """Return the unit of the measurement with this name, or the common unit of those whose names end in it."""
    properties = contract.observation["properties"] if contract else {}
    if name in properties:
        items = properties[name].get("items", {})
        return str(properties[name].get("x-unit", items.get("x-unit", "")))
    units = {str(schema.get("x-unit", "")) for other, schema in properties.items() if other.endswith(f"_{name}")}
    return units.pop() if len(units) == 1 else ""


def _words(name: str) -> str:
    spaced = name.replace("_", " ")
    return spaced[:1].upper() + spaced[1:]
