"""The action of a watcher on a refutation: log it, call a command, or end the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Final

from harness.tools.watch.job_state import JobState, Refutation
from harness.tools.watch.process import JobProcess

__all__ = ["Action", "call_hook", "end_job", "slurm_state"]

_HOOK_SECONDS: Final = 60.0
_SLURM_SECONDS: Final = 30.0


class Action(StrEnum):
    """The action on the first refutation."""

    LOG = "log"
    """Print and seal the refutation."""
    NOTIFY = "notify"
    """The command hook is called."""
    STOP = "stop"
    """Send SIGTERM once, without a time limit for saving. In a Slurm job, the job's steps get the signal."""
    KILL = "kill"
    """Send SIGTERM, and SIGKILL after the grace period. A Slurm job is cancelled."""


def call_hook(words: Sequence[str], job: JobState, refutations: Sequence[Refutation], bundles: Sequence[str]) -> str:
    """Call the command hook, with the refutations as JSON on stdin. Returns the error; empty on success."""
    document = {
        "job": job.description.get("name"),
        "step": job.step,
        "second": job.at,
        "refutations": [asdict(refutation) for refutation in refutations],
        "bundles": [*bundles],
    }
    environment = {**os.environ, "HARNESS_WATCH_WHY": refutations[0].why, "HARNESS_WATCH_CHECK": refutations[0].check}
    try:
        result = subprocess.run(
            [*words], input=json.dumps(document), text=True, timeout=_HOOK_SECONDS, env=environment, capture_output=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the hook {words[-1]} failed: {error}"
    if result.returncode == 0:
        return ""
    return f"the hook {words[-1]} ended with status {result.returncode}: {result.stderr[-300:]}"


def end_job(action: Action, process: JobProcess | None, slurm: str, grace: float) -> tuple[bool, str]:
    """End the job. Returns whether it was reached, and a description of the action.

    Args:
        slurm: the number of its Slurm job; empty if it has none.
        grace: seconds between SIGTERM and SIGKILL.
    """
    if slurm:
        return _cancel(slurm, signal_only=action is Action.STOP)
    if process is None:
        return False, "the job is not a process of this machine, nor a job of Slurm: it goes on"
    reached = process.end(signal.SIGTERM)
    said = f"SIGTERM to {reached} process" if reached else "the job had ended"
    if action is Action.KILL and reached and not process.wait(grace):
        return True, f"{said}, and after {grace:g} s SIGKILL to {process.end(signal.SIGKILL)}"
    return bool(reached), said


def _cancel(number: str, *, signal_only: bool) -> tuple[bool, str]:
    """Cancel a Slurm job, or signal its steps. The signal would end a batch script, and with it the steps."""
    words = ["scancel", number]
    if signal_only:
        steps = _slurm("squeue", "--steps", "--noheader", "--format=%i", f"--jobs={number}")
        has_steps = (  # also if Slurm does not answer
            isinstance(steps, str)
            or steps.returncode != 0
            or any(step.rpartition(".")[2].isdigit() for step in steps.stdout.split())
        )
        words[1:1] = ["--signal=TERM", *([] if has_steps else ["--full"])]
    done = _slurm(*words)
    if isinstance(done, str):
        return False, done
    return done.returncode == 0, f"{' '.join(words)}: status {done.returncode} {done.stderr.strip()[:200]}".strip()


def slurm_state(number: str) -> str | None:
    """Return the state of a Slurm job, such as RUNNING; empty if it has left the queue, None if Slurm does not
    answer."""
    done = _slurm("squeue", "--noheader", "--format=%T", f"--jobs={number}")
    if isinstance(done, str) or (done.returncode != 0 and "Invalid job id" not in done.stderr):
        return None
    return done.stdout.strip()


def _slurm(*words: str) -> subprocess.CompletedProcess[str] | str:
    """Run a Slurm command. Return its result, or why it did not run."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_SLURM_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(words)} failed: {error}"
