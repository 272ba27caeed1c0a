"""Predicts the memory of a profile's step before a trial gets the GPU."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.machine.limited_process import Stopped, completed
from harness.running.plan import Plan

__all__ = ["foreseen", "obstacle"]

_GIB = 2**30


def foreseen(plan: Plan, root: Path, interrupted: Callable[[], bool]) -> JsonObject:
    """Return the `predicted` of a record, without `measured`. The profile names a step, and the plan has a GPU.

    The step is predicted in a separate process, which sees no GPU and has the time limit of a trial. If it cannot be
    predicted, the result has the reason.
    """
    step = plan.profile.step
    assert step is not None
    assert plan.gpu is not None
    command = [sys.executable, "-m", "harness", "probe", step, "--device", plan.gpu.name.split()[-1]]
    if plan.device.memory_bytes:
        command += ["--device-memory", str(plan.device.memory_bytes / _GIB)]
    for name, value in plan.parameters.items():
        command += ["--set", f"{name}={json.dumps(value)}"]
    with TemporaryDirectory(prefix="falsifier-probe-") as folder:
        report = Path(folder, "probe.json")  # the step may print
        complaint = _complaint([*command, "--json", str(report)], root, plan.seconds, interrupted)
        try:
            (case,) = strictjson.load(report)["cases"]
            return {"step": step, **{name: case[name] for name in ("fit", "capacity", "allocated", "reserved")}}
        except (OSError, ValueError, LookupError, TypeError):  # the file is missing or truncated
            return {"step": step, "reason": complaint}


def _complaint(command: list[str], root: Path, seconds: float, interrupted: Callable[[], bool]) -> str:
    """Run the probe. Return the end of its standard error, or how it ended; empty on success."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = completed(command, seconds, cwd=root, environment=environment, ended=interrupted)
    except Stopped as error:
        return str(error)
    return done.stderr.strip()[-400:] or f"it ended with {done.returncode}"


def obstacle(predicted: JsonObject) -> str:
    """Why a run with this prediction cannot succeed; empty if it may fit."""
    if predicted.get("fit") != "does not fit":
        return ""
    needed, there = (predicted[name] / _GIB for name in ("reserved", "capacity"))
    return f"the step is predicted to need {needed:.1f} GiB, and the GPU has {there:.1f}: it does not fit"
