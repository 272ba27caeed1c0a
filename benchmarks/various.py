"""The probe's predictions of many different steps beside torch's measurements on this GPU.

    python -m benchmarks.various [--last] [--only NAME …] [--jobs 6] [--measured FILE] [--json FILE] [--traces FILE]

The steps are the functions of benchmarks/various_steps; `--last` adds those of last.py, which were written before the
probe was mended and predicted only after it. Each step is predicted and measured in a fork of one process that has
imported torch. `--measured` takes the measurements from a file that `--json` wrote before. `--traces` keeps the events
of torch's allocator in each measured run, and what operators allocate and free, one JSON line for each step,
compressed by gzip.

Columns: the errors of the predicted `max_memory_allocated` and `max_memory_reserved` over build and two steps in
percent, both peaks as measured in MiB, and the seconds of the prediction. A step that the probe refuses has the reason
instead. A `*` marks predictions that run operators of unmeasured memory, for which the probe never says `fits`.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness.machine.limited_process import Limits, Stopped, isolated_all

MIB = 1024**2
MODULES = ("derivatives", "layers", "indexing", "placement", "updates")
_LIMITS = Limits(math.inf, 60.0, None, 256 << 20, speaks=False)


def main() -> int:
    """Predict, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--last", action="store_true", help="also the steps of last.py")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--measured", metavar="FILE", help="take the measurements from here")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--traces", metavar="FILE")
    arguments = parser.parse_args()
    builds = {name: build for name, build in steps(arguments.last).items() if name in (arguments.only or [name])}
    rows = {name: {"name": name, "predicted": found} for name, found in _each(_predicted, builds, arguments.jobs)}
    for name, found in _measurements(arguments, builds):
        kept = {"name": name, "trace": found.pop("trace", None), "operators": found.pop("operators", None)}
        if kept["trace"] and arguments.traces:
            with gzip.open(arguments.traces, "at", compresslevel=3) as file:
                file.write(json.dumps(kept) + "\n")
        rows[name]["measured"] = found
    for row in rows.values():
        print(_line(row))
    _print_worst(list(rows.values()))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(list(rows.values()), indent=1), encoding="utf-8")
    return 0


def steps(has_last: bool = False) -> dict[str, Callable[[], Any]]:
    """The functions that build a step, by name."""
    found: dict[str, Callable[[], Any]] = {}
    for name in (*MODULES, *(["last"] if has_last else [])):
        module = importlib.import_module(f"benchmarks.various_steps.{name}")
        for function, build in inspect.getmembers(module, inspect.isfunction):
            is_build = build.__module__ == module.__name__ and not function.startswith("_")
            if is_build and not inspect.signature(build).parameters:
                found[function] = build
    return found


def _measurements(arguments: argparse.Namespace, builds: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    import torch

    if arguments.measured:
        rows = json.loads(Path(arguments.measured).read_text(encoding="utf-8"))
        return [(row["name"], row["measured"]) for row in rows if row["name"] in builds and "measured" in row]
    if torch.cuda.device_count() == 0:
        return []
    return _each(_measured, builds, arguments.jobs)


def _each(
    work: Callable[[Any], dict[str, Any]], builds: dict[str, Any], jobs: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What `work` finds for each build, in a fork of this process."""
    from transformers import GPT2LMHeadModel  # noqa: F401 - once, for all forks

    from harness.tools.probe import tracer  # noqa: F401
    from harness.tools.probe.present_device import library

    library()  # compiled once; a thread for backward, which a fork lacks, is started by the forks
    works = [partial(_told, work, build) for build in builds.values()]
    for name, answer in zip(builds, isolated_all(works, _LIMITS, jobs), strict=True):
        yield name, {"error": str(answer)} if isinstance(answer, Stopped) else json.loads(answer)


def _told(work: Callable[[Any], dict[str, Any]], build: Any) -> bytes:
    try:
        found = work(build)
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"[:400]}
    return json.dumps(found).encode()


def _predicted(build: Callable[[], Any]) -> dict[str, Any]:
    from benchmarks.probe_child import predicted

    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return predicted(build, {})


def _measured(build: Callable[[], Any]) -> dict[str, Any]:
    from benchmarks.probe_child import measured

    with contextlib.redirect_stdout(sys.stderr):
        return measured(build, {}, has_operators=True)


def _line(row: dict[str, Any]) -> str:
    predicted, measured = row["predicted"], row.get("measured", {})
    parts = [f"{row['name']:34}"]
    for found in (predicted, measured):
        if "error" in found:
            return " ".join([*parts, "measured" if found is measured else "", found["error"].partition("\n")[0][:200]])
    for key in ("allocated", "reserved"):
        error = f"{_error(row, key):+7.2f} %" if measured else "         "
        parts.append(f"{key} {error} of {(measured or predicted)[key] / MIB:8.0f} MiB")
    return "  ".join([*parts, f"{predicted['seconds']:5.2f} s", "*" if predicted["unmeasured"] else ""])


def _error(row: dict[str, Any], key: str) -> float:
    measured: int = row["measured"][key]
    return 100 * (row["predicted"][key] / measured - 1)


def _print_worst(rows: list[dict[str, Any]]) -> None:
    good = [row for row in rows if "allocated" in row["predicted"] and "allocated" in row.get("measured", {})]
    known = [row for row in good if not row["predicted"]["unmeasured"]]
    for key, most in (("allocated", 0.5), ("reserved", 2.0)):
        if known:
            worst = max(known, key=lambda row: abs(_error(row, key)))
            within = sum(abs(_error(row, key)) <= most for row in known)
            print(
                f"{key}: {within} of {len(known)} within {most} %, worst {_error(worst, key):+.2f} % ({worst['name']})"
            )
    refused = [row["name"] for row in rows if "error" in row["predicted"]]
    print(f"{len(good) - len(known)} with unmeasured operators, {len(refused)} refused: {', '.join(refused)}")
    seconds = [row["predicted"]["seconds"] for row in rows if "seconds" in row["predicted"]]
    if seconds:
        print(f"prediction: mean {sum(seconds) / len(seconds):.2f} s, largest {max(seconds):.2f} s")


if __name__ == "__main__":
    sys.exit(main())
