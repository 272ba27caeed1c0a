"""The plots of a trial: its step series, its lists of samples, and the telemetry of the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from harness.contract import Contract
from harness.evidence.bundle import Series
from harness.report.html.contents import Contents
from harness.report.html.plot import Figure, Line

__all__ = ["machine", "samples", "training"]

_STEP, _SECONDS = "step", "seconds"
_MOST_COLUMNS, _MOST_SAMPLES = 12, 12
_FEWEST_SAMPLES = 8
"""Fewer samples are shown as numbers only."""

_SUFFIXES: Final = (
    ("_per_second", "/s"),
    ("_bytes", "B"),
    ("_percent", "%"),
    ("_watts", "W"),
    ("_celsius", "°C"),
    ("_mhz", "MHz"),
    ("_seconds", "s"),
    ("_ms", "ms"),
    ("_us", "µs"),
    ("_nats", "nats"),
)
"""The unit of a column, by the end of its name."""

_MACHINE: Final[Sequence[tuple[str, str, Mapping[str, str]]]] = (
    (
        "Memory",
        "B",
        {
            "gpu_process_memory_bytes": "the trial on the GPU",
            "gpu_memory_used_bytes": "the GPU in all",
            "rss_bytes": "the trial on the host",
        },
    ),
    ("Utilisation", "%", {"gpu_utilisation_percent": "GPU", "cpu_percent": "the trial's CPU, 100 % a core"}),
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
    names = [name for name in series.columns if name not in (_STEP, _SECONDS)]
    for name in names[:_MOST_COLUMNS]:
        if any(value is not None for value in series.columns[name]):
            title, unit = _named(name, contents.contract)
            yield _figure(title, unit, "step", [Line(title, steps, series.columns[name])])
    stamps = series.columns.get(_SECONDS, ())
    took = [
        None if before is None or after is None else (after - before) / (step - last) if step > last else None
        for (last, before), (step, after) in zip(
            zip(steps, stamps, strict=False), zip(steps[1:], stamps[1:], strict=False), strict=False
        )
    ]
    if sum(value is not None for value in took) > 1:
        yield _figure("Time a step", "s", "step", [Line("time a step", steps[1:], took)])


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
            yield _figure(title, unit, "seconds since the trial's start", lines)


def samples(contents: Contents) -> Iterator[Figure]:
    """Yield a plot for each measurement that is a list of numbers, unless a column has the same numbers."""
    contract, observation = contents.contract, contents.observation
    known = [list(column) for column in contents.metrics.columns.values()]
    shown = 0
    for name, values in (observation.measurements if observation else {}).items():
        if shown < _MOST_SAMPLES and _is_samples(values) and values not in known:
            shown += 1
            unit = _unit(name, contract)
            line = Line(_words(name), range(1, len(values) + 1), [float(value) for value in values])
            yield _figure(_words(name), unit, "sample", [line])


def _is_samples(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) >= _FEWEST_SAMPLES
        and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    )


def _figure(title: str, unit: str, x_label: str, lines: list[Line]) -> Figure:
    divisor = 1.0
    if unit == "B":
        largest = max((y for line in lines for _, y in line.finite()), default=0.0)
        divisor, unit = next(
            ((size, name) for size, name in ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")) if largest >= size),
            (1.0, "B"),
        )
    return Figure(title, unit, x_label, tuple(lines), divisor)


def _axis(series: Series, name: str) -> list[float]:
    """Return a column if it has a number in every row, else an empty list."""
    column = series.columns.get(name, ())
    values = [value for value in column if value is not None and abs(value) < 1e15]
    return values if len(values) == len(column) else []


def _named(name: str, contract: Contract | None) -> tuple[str, str]:
    """Return the title and unit of a column."""
    for suffix, unit in _SUFFIXES:
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
    units = {str(one.get("x-unit", "")) for other, one in properties.items() if other.endswith(f"_{name}")}
    return units.pop() if len(units) == 1 else ""


def _words(name: str) -> str:
    spaced = name.replace("_", " ")
    return spaced[:1].upper() + spaced[1:]
