"""F-GB10-ALLOC-001: the allocator's setting is in effect, and less memory is reserved without use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from falsifiers.nanochat.alternating_steps import steps
from falsifiers.nanochat.subject import AllocatorSetting
from harness import Trial

__all__ = ["falsify"]

_MODULE = "falsifiers.nanochat.alternating_steps"


def falsify(trial: Trial[AllocatorSetting]) -> None:
    """Make steps whose batch grows and shrinks in two processes, with the subject's setting and without one."""
    with trial.subject_fault():
        told, late = dict(trial.subject.environment()), dict(trial.subject.late())
        on = _steps(told, late, trial.parameters["rows"])
    off = _steps({}, {}, trial.parameters["rows"])
    right = steps(trial.parameters["rows"])["losses"]  # in this process, whatever its allocator
    trial.measure(
        loss_differences=[
            abs(got - true) / abs(true) for one in (on, off) for got, true in zip(one["losses"], right, strict=True)
        ],
        setting_in_effect=on["expandable"],
        segments_expandable=on["segments_expandable"],
        expandable_without=off["expandable"],
        reserved=[off["reserved"], on["reserved"]],
        allocated=[off["allocated"], on["allocated"]],
        unused_over_off=(on["reserved"] - on["allocated"]) / max(1, off["reserved"] - off["allocated"]),
    )
    trial.resolve(device=on["device"])


def _steps(environment: Mapping[str, str], late: Mapping[str, str], rows: list[int]) -> dict[str, Any]:
    """Return what a process with these variables says of its allocator."""
    clean = {name: value for name, value in os.environ.items() if not name.endswith("ALLOC_CONF")}
    command = [sys.executable, "-m", _MODULE, json.dumps(dict(late)), json.dumps(rows)]
    run = subprocess.run(
        command,
        env={**clean, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(f"the steps ended with {run.returncode}: {run.stderr[-600:]}")
    found: dict[str, Any] = json.loads(run.stdout)
    return found
