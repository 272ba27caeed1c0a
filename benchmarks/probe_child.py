"""A process of benchmarks.probe: predicts, measures or tracks one step, and prints the result as JSON.

python -m benchmarks.probe_child predict|measure|track CONFIGURATION
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.probe_configurations import OVER_TWO_GPUS, chosen


def main(what: str, name: str) -> None:
    """Print the result; with several ranks, that of the first one."""
    from harness.tools.probe.present_device import library

    rank = int(os.environ.get("LOCAL_RANK", 0))
    if "LOCAL_RANK" in os.environ:
        import torch

        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    build, keywords = chosen(name)
    library()  # compiled once for each version of torch, and not timed
    if what == "predict" and name in OVER_TWO_GPUS:
        keywords = {**keywords, "ranks": 2}
    found = _WORKS[what](build, keywords)
    if rank == 0:
        print(json.dumps(found))


def predicted(build: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return what the probe says, and the seconds it took."""
    from harness.tools.probe import predict

    start, used = time.perf_counter(), time.process_time()
    found = predict(build, **keywords)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    return {
        "allocated": found.allocated,
        "reserved": found.reserved,
        "seconds": seconds,
        "processor": used,
        "phases": [(each.phase, each.allocated, each.reserved) for each in found.phases],
        "by_owner": found.by_owner,
        "unmeasured": sorted(found.trace.unmeasured),
        "place": found.place._asdict(),
    }


def measured(build: Callable[..., Any], keywords: dict[str, Any], *, has_operators: bool = False) -> dict[str, Any]:
    """Return the peaks of a real run, and the events of torch's allocator.

    With `has_operators`, also what operators allocate and free (operator_memory.py), in one more step.
    """
    import torch

    from benchmarks.operator_memory import temporaries_of

    start = time.perf_counter()
    phases = []
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=1 << 20)

    def note(phase: str) -> None:
        torch.cuda.synchronize()
        phases.append((phase, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
        torch.cuda.reset_peak_memory_stats()

    step = build(**keywords)
    note("build")
    for phase in ("step 1", "step 2"):
        step()
        note(phase)
    context, retries = _context(torch.cuda.memory_reserved()), torch.cuda.memory_stats()["num_alloc_retries"]
    snapshot = torch.cuda.memory._snapshot()
    events = snapshot["device_traces"][torch.cuda.current_device()]
    return {
        "allocated": max(allocated for _, allocated, _ in phases),
        "reserved": max(reserved for _, _, reserved in phases),
        "seconds": time.perf_counter() - start,
        "phases": phases,
        "context": context,
        "retries": retries,
        "trace": [(each["action"], each.get("addr", 0), each["size"], each.get("stream", 0)) for each in events],
        "operators": temporaries_of(step) if has_operators else {},
    }


def _context(reserved: int) -> int | None:
    """Return the process's memory of the GPU outside the allocator, if the driver reports it by process."""
    try:
        import pynvml

        pynvml.nvmlInit()
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
    except Exception:  # no bindings, or a driver that does not tell
        return None
    return next((each.usedGpuMemory - reserved for each in processes if each.pid == os.getpid()), None)


def _track(build: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Run torch's tracker on fake tensors, as its documentation shows, with a simulated GPU."""
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker

    from harness.tools.probe.device_table import device_named
    from harness.tools.probe.results import Fakes
    from harness.tools.probe.tracer import Tracer

    start, used = time.perf_counter(), time.process_time()
    with Tracer(device_named("H200")).pretending(), Fakes():
        step = build(**keywords)
        cells: list[Any] = [cell.cell_contents for cell in step.__closure__ or ()]
        held = [each for each in cells if isinstance(each, torch.nn.Module | torch.optim.Optimizer)]
        tracker = MemTracker()
        tracker.track_external(*held)
        with tracker:
            step()
            tracker.reset_mod_stats()
            step()
        peak = tracker.get_tracker_snapshot("peak")
    found = sum(parts["Total"] for device, parts in peak.items() if device.type == "cuda")
    return {
        "allocated": found,
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - used,
    }


_WORKS = {"predict": predicted, "measure": measured, "track": _track}

if __name__ == "__main__":
    main(*sys.argv[1:])
