"""What is asked of Slurm for a claim: the resources that its contract implies, and the command that the job runs."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.contract import Contract, Profile
from harness.run.request import RunRequest
from harness.run.slurm.job import Job

__all__ = ["Submission", "obstacle", "resources"]

_MARGIN_SECONDS = 600
"""For imports, leases and sealing, above the limits of the trials."""


@dataclass(frozen=True)
class Submission:
    """Submits claims of one project."""

    root: Path
    """The project's root; jobs run there, so nodes must see it under the same path."""
    evidence: Path
    extra: Sequence[str] = ()
    """Further options of `srun`; they win over those that follow from a contract."""
    key: Path | None = None
    """The private key that the job signs with, under the same path there."""

    def submit(self, contract: Contract, request: RunRequest) -> Job:
        """Submit the job of a claim; OSError where `srun` cannot be started."""
        return Job([*resources(contract, request), *self.extra], self.command(contract, request), self.root)

    def command(self, contract: Contract, request: RunRequest) -> list[str]:
        """What the job runs: the same harness in the same interpreter, which tells its events line by line.

        The job runs the profile whose resources it asked for. Another would pass on a node whose GPU does not work.
        """
        request = replace(request, profile=_profile_asked(contract, request).name)
        jobs = [] if request.jobs is None else ["--jobs", str(request.jobs)]
        where = ["--evidence", str(self.evidence.absolute()), "--event-lines"]
        key = [] if self.key is None else ["--key", str(self.key.absolute())]
        return [sys.executable, "-m", "harness", "run", contract.id, *request.arguments(), *jobs, *where, *key]


def obstacle() -> str:
    """Why no job can be submitted from here, with the remedy; empty where one can."""
    if "SLURM_JOB_ID" in os.environ:
        job = os.environ["SLURM_JOB_ID"]
        return f"this shell runs in job {job} of Slurm already; leave out --executor slurm to run on its resources"
    lacking = [name for name in ("srun", "squeue", "scancel") if shutil.which(name) is None]
    return f"{lacking[0]} is not on PATH; submit from a login node of the cluster" if lacking else ""


def resources(contract: Contract, request: RunRequest) -> list[str]:
    """The options of `srun` that follow from a contract: GPUs, processors and time.

    The time is what all trials may take together, one after the other.
    """
    profile = _profile_asked(contract, request)
    trials = 1 + (len(contract.mutants) if request.mutants else 0)
    minutes = math.ceil((trials * profile.seconds + _MARGIN_SECONDS) / 60)
    asked = [f"--job-name={contract.id}", f"--time={minutes}"]
    wants_gpu = profile.requires["device"] == "cuda" or request.device.startswith("cuda") or "gpus" in profile.requires
    if wants_gpu and request.device != "cpu":
        asked.append(f"--gres=gpu:{profile.requires.get('gpus', 1)}")
    if request.jobs is not None:
        asked.append(f"--cpus-per-task={request.jobs}")
    return asked


def _profile_asked(contract: Contract, request: RunRequest) -> Profile:
    """The profile whose resources a job asks for: that of the command line, else the claim's own, `full`."""
    wanted = "full" if request.profile == "auto" else request.profile
    return contract.profiles.get(wanted) or next(iter(contract.profiles.values()))
