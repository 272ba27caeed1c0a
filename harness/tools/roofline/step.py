"""The kernels of a step, and where they lie under the roofs."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.tools.roofline.roofs import RooflineError, Roofs
from harness.tools.roofline.work import Work, work_of

__all__ = ["Kernel", "Placed", "kernels", "placed", "profiled"]

_WARMUP, _TIMED = 3, 7


@dataclass(frozen=True)
class Kernel:
    """All launches of one kernel for one operator of a step.

    Attributes:
        name: of the kernel; on a CPU of the operator.
        operator: of torch that launched it.
        calls: how often the operator ran.
        seconds: of all calls together.
        work: of all calls together; None if the trace does not tell.
    """

    name: str
    operator: str
    calls: int
    seconds: float
    work: Work | None


@dataclass(frozen=True)
class Placed:
    """A kernel under the roofs.

    Attributes:
        roof: the roof above it: "memory", "cache" or a product's; None if its work is not known.
        share: of that roof that it reached.
        unplaced: why there is no share.
    """

    roof: str | None
    share: float | None
    unplaced: str | None = None


def profiled(step: Callable[[], object], kind: str) -> tuple[float, list[Kernel]]:
    """Return the median seconds of a step without profiler, and its kernels, longest first."""
    wait: Callable[[], object] = torch.cuda.synchronize if kind == "cuda" else lambda: None
    for _ in range(_WARMUP):
        step()
    samples = []
    for _ in range(_TIMED):
        wait()
        started = time.perf_counter()
        step()
        wait()
        samples.append(time.perf_counter() - started)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if kind == "cuda" else [])]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        with profile(activities=activities, record_shapes=True) as profiler:
            step()
            wait()
        profiler.export_chrome_trace(str(file))
        trace = strictjson.load(file)
    return statistics.median(samples), kernels(trace["traceEvents"], kind)


def kernels(events: Sequence[JsonObject], kind: str) -> list[Kernel]:
    """Return the kernels of a trace in Chrome's format, longest first.

    Raises:
        RooflineError: the trace has none.
    """
    operators = [event for event in events if event.get("cat") == "cpu_op" and "dur" in event]
    spans = _on_device(events, operators) if kind == "cuda" else _on_cpu(operators)
    groups: dict[tuple[str, str, str], list[tuple[float, Work | None]]] = defaultdict(list)
    works: dict[str, Work | None] = {}
    for name, operator, microseconds in spans:
        work = _work(operator, works)
        if work is None or work.bytes:  # a view does nothing
            groups[name, operator.get("name", ""), work.dtype if work else ""].append((microseconds * 1e-6, work))
    if not groups:
        raise RooflineError(f"the step ran nothing on {kind}")
    merged = (
        Kernel(*names[:2], len(each), sum(s for s, _ in each), _sum(w for _, w in each))
        for names, each in groups.items()
    )
    return sorted(merged, key=lambda kernel: -kernel.seconds)


def _work(operator: JsonObject, works: dict[str, Work | None]) -> Work | None:
    arguments = operator.get("args", {})
    recorded = [arguments.get(name, []) for name in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")]
    key = f"{operator.get('name')} {recorded}"
    if key not in works:
        works[key] = work_of(operator.get("name", ""), *recorded)
    return works[key]


def _on_device(
    events: Sequence[JsonObject], operators: Sequence[JsonObject]
) -> Iterator[tuple[str, JsonObject, float]]:
    """Yield for each operator that launched kernels its longest kernel, and the time of all of them."""
    by_id = {event["args"]["External id"]: event for event in operators if "External id" in event.get("args", {})}
    launched: dict[Any, list[JsonObject]] = defaultdict(list)
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            launched[event["args"].get("External id", event["name"])].append(event)
    for key, each in launched.items():
        operator = by_id.get(key, {})
        if operator or len(each) == 1:
            longest = max(each, key=lambda event: event["dur"])
            yield longest["name"], operator, sum(event["dur"] for event in each)
        else:
            for event in each:
                yield event["name"], {}, event["dur"]


def _on_cpu(operators: Sequence[JsonObject]) -> Iterator[tuple[str, JsonObject, float]]:
    """Yield the operators that do most of their work themselves, with the time that they take without others."""
    threads: dict[Any, list[JsonObject]] = defaultdict(list)
    for event in operators:
        threads[event["tid"]].append(event)
    for each in threads.values():
        inside: dict[int, float] = defaultdict(float)
        open_: list[JsonObject] = []
        for event in sorted(each, key=lambda event: (event["ts"], -event["dur"])):
            while open_ and open_[-1]["ts"] + open_[-1]["dur"] <= event["ts"]:
                open_.pop()
            if open_:
                inside[id(open_[-1])] += event["dur"]
            open_.append(event)
        for event in each:
            alone = event["dur"] - inside[id(event)]
            if alone > event["dur"] / 2:
                yield event["name"], event, alone


def _sum(works: Iterator[Work | None]) -> Work | None:
    listed = list(works)
    known = [work for work in listed if work is not None]
    if len(known) < len(listed) or not known:
        return None
    first = known[0]
    return Work(sum(w.operations for w in known), sum(w.bytes for w in known), first.dtype, first.products)


def placed(kernel: Kernel, roofs: Roofs) -> Placed:
    """Place a kernel under the lowest roof that its work allows.

    Raises:
        PeakTooLowError: it did more operations a second than the measured peak, even of products of zeros.
    """
    work = kernel.work
    if work is None or kernel.seconds <= 0:
        return Placed(None, None, "its arguments do not tell its work")
    moved = work.bytes / kernel.seconds
    peak = _product(work, roofs)
    if work.products and peak is not None:
        achieved, zeros = work.operations / kernel.seconds, peak.replace("product", "zeros")
        if achieved > roofs.roofs[peak].peak and zeros in roofs.roofs and roofs.share(achieved, zeros):
            return Placed(None, None, "faster than products of random numbers, slower than of zeros")
        share = roofs.share(achieved, peak)
        if share >= moved / roofs.memory:
            return Placed(peak, share)
    if moved <= roofs.memory:
        return Placed("memory", moved / roofs.memory)
    cache = roofs.roofs.get("cache")
    if cache is not None and moved <= cache.peak:
        return Placed("cache", moved / cache.peak)
    return Placed(None, None, "it does not read all of its arguments")


def _product(work: Work, roofs: Roofs) -> str | None:
    tf32 = work.dtype == "float32" and torch.get_float32_matmul_precision() != "highest"
    names = (["product tf32"] if tf32 else []) + [f"product {work.dtype}"]
    return next((name for name in names if name in roofs.roofs), None)
