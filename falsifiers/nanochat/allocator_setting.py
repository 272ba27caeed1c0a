"""F-GB10-ALLOC-001: the allocator's setting is in effect, and less memory is reserved without use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from falsifiers.nanochat.subject import AllocatorSetting
from harness import Trial

__all__ = ["falsify"]

_STEPS = """
import json, os, sys
late, sizes = json.loads(sys.argv[1]), json.loads(sys.argv[2])
first = torch.zeros(1 << 20, device="cuda")
os.environ.update(late)
worst = peak = 0
for rows in sizes:
    x = torch.randn(rows, 2048, device="cuda", requires_grad=True)
    w = [torch.randn(2048, 2048, device="cuda", requires_grad=True) for _ in range(4)]
    y = x
    for one in w:
        y = torch.relu(y @ one)
    y.square().mean().backward()
    torch.cuda.synchronize()
    peak = max(peak, torch.cuda.memory_reserved())
    del x, w, y, one
    worst = max(worst, torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
snapshot = torch.cuda.memory._snapshot()
print(json.dumps({
    "expandable": bool(snapshot["allocator_settings"].get("expandable_segments")),
    "segments_expandable": any(bool(one.get("is_expandable")) for one in snapshot["segments"]),
    "reserved": peak, "allocated": torch.cuda.max_memory_allocated(), "unused": worst,
}))
"""


def falsify(trial: Trial[AllocatorSetting]) -> None:
    """Make steps whose batch grows and shrinks in two processes, with the subject's setting and without one."""
    with trial.subject_fault():
        told, late = dict(trial.subject.environment()), dict(trial.subject.late())
        on = _steps(told, late, trial.parameters["rows"])
    off = _steps({}, {}, trial.parameters["rows"])
    trial.measure(
        setting_in_effect=on["expandable"],
        segments_expandable=on["segments_expandable"],
        expandable_without=off["expandable"],
        reserved=[off["reserved"], on["reserved"]],
        allocated=[off["allocated"], on["allocated"]],
        unused_over_off=(on["reserved"] - on["allocated"]) / max(1, off["reserved"] - off["allocated"]),
    )
    trial.resolve(device="cuda" if on["allocated"] else "cpu")


def _steps(environment: Mapping[str, str], late: Mapping[str, str], rows: list[int]) -> dict[str, Any]:
    """Return what a process with these variables says of its allocator."""
    clean = {name: value for name, value in os.environ.items() if not name.endswith("ALLOC_CONF")}
    command = [sys.executable, "-c", _STEPS, json.dumps(dict(late)), json.dumps(rows)]
    run = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"the steps ended with {run.returncode}: {run.stderr[-600:]}")
    found: dict[str, Any] = json.loads(run.stdout)
    return found
