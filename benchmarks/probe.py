"""The probe's predictions beside torch's measurements on this GPU, and its speed beside that of other tools.

    python -m benchmarks.probe [--only distillation-4x256 …] [--jobs 6] [--kernels] [--json FILE] [--traces FILE]

Each configuration is predicted and measured in its own processes. All are predicted first, while no other part of this
benchmark uses the GPU. Then they are measured, as many at a time as fit. A configuration of two ranks needs two GPUs.
Without a GPU, only predictions are printed. `--traces` keeps the events of torch's allocator in each measured run, one
JSON line for each configuration, compressed by gzip. `--kernels` measures instead the memory of single operators and of
the context, for device_table.py and kernel_memory.py.

Columns: predicted and measured peaks of `torch.cuda.max_memory_allocated` and `max_memory_reserved` in GiB over build
and two steps, their relative error in percent, and seconds: of the prediction, of torch's MemTracker on the same step,
and of the measured run. The factor between the first two is that of processor time. `outside` is the number of
additional bytes of the GPU that were in use, by NVML, while the predictions ran.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.probe_configurations import ALL, CONFIGURATIONS, OVER_TWO_GPUS

GIB = 1024**3


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(ALL), default=list(CONFIGURATIONS))
    parser.add_argument("--jobs", type=int, default=1, help="how many processes may run at a time")
    parser.add_argument("--kernels", action="store_true", help="measure single operators and the context")
    parser.add_argument(
        "--trackers",
        nargs="*",
        default=["distillation-4x256", "1.5b-float32-2x512", "decomposition"],
        help="time MemTracker",
    )
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--traces", metavar="FILE")
    arguments = parser.parse_args()
    if arguments.kernels:
        from benchmarks.probe_kernels import measured

        rows: Any = measured()
        print(json.dumps(rows, indent=1))
    else:
        rows = _compared(arguments)
        _print_summary(rows)
    _keep(rows, arguments.json)
    return 0


def _compared(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    import torch

    rows: list[dict[str, Any]] = [{"name": name} for name in arguments.only]
    with ThreadPoolExecutor(arguments.jobs) as pool, _Outside() as outside:
        answers = pool.map(lambda row: _child("predict", row["name"]), rows)
        for row, predicted in zip(rows, answers, strict=True):
            row["predicted"] = predicted
            print("predicted", _line(row), flush=True)
            _keep(rows, arguments.json)
    memory = _Memory()

    def found(row: dict[str, Any]) -> dict[str, Any]:
        further = {}
        if torch.cuda.is_available():
            with memory.taken(row["predicted"].get("reserved", 0) + GIB):
                further["measured"] = _child("measure", row["name"])
        if row["name"] in arguments.trackers:
            further["tracker"] = _child("track", row["name"])
        return further

    tracked_first = sorted(rows, key=lambda row: row["name"] not in arguments.trackers)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        working = {pool.submit(found, row): row for row in tracked_first}
        for done in as_completed(working):
            row = working[done]
            row.update(done.result())  # here, and not in the threads: this one writes all rows to the file
            row["outside"] = outside.most
            trace = row.get("measured", {}).pop("trace", None)
            if trace and arguments.traces:
                with gzip.open(arguments.traces, "at") as file:
                    file.write(json.dumps({"name": row["name"], "trace": trace}) + "\n")
            print(_line(row), flush=True)
            _keep(rows, arguments.json)
    return rows


def _keep(rows: Any, name: str | None) -> None:
    if name:
        Path(name).write_text(json.dumps(rows, indent=1), encoding="utf-8")


class _Memory:
    """The GPU's memory, shared by the measured runs."""

    def __init__(self) -> None:
        import torch

        self._whole = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0
        self._free = self._whole
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        size = min(size, self._whole)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


def _child(what: str, name: str) -> dict[str, Any]:
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    launcher = ["-W", "ignore"]
    ranks = 2 if name in OVER_TWO_GPUS else 1
    if what == "measure" and ranks > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *launcher, "-m", "benchmarks.probe_child", what, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return {"error": done.stderr.strip()[-1500:]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


class _Outside:
    """Samples by NVML how many bytes the GPU has in use, and keeps the largest difference to the beginning."""

    def __init__(self) -> None:
        self.most: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> _Outside:
        try:
            import pynvml

            pynvml.nvmlInit()
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(visible))
            first = pynvml.nvmlDeviceGetMemoryInfo(handle).used
        except Exception:  # no driver
            return self

        def sample() -> None:
            while not self._stop.wait(0.02):
                more = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used - first)
                self.most = max(more, self.most or 0)

        self._thread = threading.Thread(target=sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def _line(row: dict[str, Any]) -> str:
    predicted, measured, tracker = row["predicted"], row.get("measured", {}), row.get("tracker", {})
    parts = [f"{row['name']:28}"]
    for found in (predicted, measured):
        if "error" in found:
            return " ".join([*parts, "error:", found["error"].splitlines()[-1][-200:]])
    for key in ("allocated", "reserved"):
        parts.append(f"{key} {predicted[key] / GIB:8.3f}")
        if measured:
            parts.append(f"measured {measured[key] / GIB:8.3f} error {_error(row, key):+6.2f} %")
    parts.append(f"{predicted['seconds']:5.1f} s")
    if "error" in tracker:
        parts.append(f"MemTracker: {tracker['error'].splitlines()[-1][:100]}")
    elif tracker:
        parts.append(f"MemTracker {tracker['allocated'] / GIB:.3f} in {tracker['seconds']:.1f} s")
    if measured:
        parts.append(f"real {measured['seconds']:.1f} s")
    if measured and measured["context"]:
        parts.append(f"context {measured['context'] / 1024**2:.0f} MiB")
    if row.get("outside") is not None:
        parts.append(f"outside {row['outside']} B")
    return "  ".join(parts)


def _error(row: dict[str, Any], key: str) -> float:
    measured: int = row["measured"][key]
    return 100 * (row["predicted"][key] / measured - 1)


def _print_summary(rows: list[dict[str, Any]]) -> None:
    good = [row for row in rows if "allocated" in row["predicted"] and "allocated" in row.get("measured", {})]
    for key in ("allocated", "reserved"):
        errors = [abs(_error(row, key)) for row in good]
        if errors:
            print(
                f"{key}: median error {statistics.median(errors):.2f} %, worst {max(errors):.2f} %, {len(good)} steps"
            )
    for row in rows:
        if "processor" in row.get("tracker", {}) and "processor" in row["predicted"]:
            factor = row["tracker"]["processor"] / row["predicted"]["processor"]
            print(f"{row['name']}: MemTracker takes {factor:.1f} times as much of a processor")
    _print_estimators()


def _print_estimators() -> None:
    """Print the estimates of accelerate and DeepSpeed for Adam: weights, gradients and state, without activations."""
    import torch

    from benchmarks import probe_steps

    with torch.device("meta"):
        models = {size: probe_steps.empty(size) for size in probe_steps.SHAPES}
    if importlib.util.find_spec("accelerate") is not None:
        from accelerate.utils import calculate_maximum_sizes

        for size, model in models.items():
            print(f"accelerate, {size}: {4 * calculate_maximum_sizes(model)[0] / GIB:.2f} GiB")
    if importlib.util.find_spec("deepspeed") is not None:
        from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

        for size, model in models.items():
            weights = sum(parameter.numel() for parameter in model.parameters())
            needed = estimate_zero2_model_states_mem_needs(weights, num_gpus_per_node=1, cpu_offload=False)[1]
            print(f"DeepSpeed's ZeRO-2 estimator, {size}: {needed / GIB:.2f} GiB")


if __name__ == "__main__":
    sys.exit(main())
