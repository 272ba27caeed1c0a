"""Asks the probe for the memory of a profile's step, before a trial gets the GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from harness.base import strictjson
from harness.base.strictjson import JsonObject
from harness.running.plan import Plan

__all__ = ["foreseen", "obstacle"]

_GIB = 2**30


def foreseen(plan: Plan, root: Path, interrupted: Callable[[], bool]) -> JsonObject:
    """Return the `predicted` of a record, without `measured`; empty if the profile names no step or needs no GPU.

    The step is predicted in a process of its own, which sees no GPU. If it cannot be, the result has the reason.
    """
    step = plan.profile.step
    if step is None or plan.gpu is None:
        return {}
    capacity = (plan.device.memory_bytes or 0) / _GIB
    command = [sys.executable, "-m", "harness", "probe", step, "--json", "-", "--device", plan.gpu.name.split()[-1]]
    command += ["--device-memory", str(capacity)] if capacity else []
    for name, value in plan.parameters.items():
        command += ["--set", f"{name}={json.dumps(value)}"]
    with subprocess.Popen(
        command, cwd=root, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        while True:
            try:
                told, complaint = process.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if interrupted():
                    process.kill()
    if not told:
        return {"step": step, "reason": complaint.strip()[-400:] or f"it ended with {process.returncode}"}
    (case,) = strictjson.loads(told)["cases"]
    return {"step": step, **{name: case[name] for name in ("fit", "capacity", "allocated", "reserved")}}


def obstacle(predicted: JsonObject) -> str:
    """Why a run with this prediction need not begin; empty if it may fit."""
    if predicted.get("fit") != "does not fit":
        return ""
    needed, there = (predicted[name] / _GIB for name in ("reserved", "capacity"))
    return f"the step is predicted to need {needed:.1f} GiB, and the GPU has {there:.1f}: it does not fit"
