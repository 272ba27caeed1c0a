"""The job of a claim: the resources that its contract requires, and its command."""

from __future__ import annotations

import math
import os
import re
import secrets
import shutil
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from harness.contract import Contract, Profile
from harness.running.request import RunRequest
from harness.tools.slurm.job import Job, ask

__all__ = ["HARNESS", "Submission", "obstacle"]

HARNESS = (sys.executable, "-m", "harness", "run")
"""What a job runs: the same harness in the same interpreter."""
_CAPABILITY = re.compile(r"\bsm_([0-9]+)")
_MARGIN_SECONDS = 600
"""For imports, leases and sealing, above the limits of the trials."""


@dataclass(frozen=True)
class Submission:
    """Submits the claims of a request."""

    root: Path
    """The project's root; jobs run there, so nodes must see it under the same path."""
    evidence: Path
    request: RunRequest
    """Its options of `srun` replace those that follow from a contract. Its key is under the same path on the nodes."""
    name: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}-{secrets.token_hex(3)}")
    """Of the run. Its bundles record it."""

    def submit(self, contract: Contract) -> Job:
        """Submit the job of a claim. Raises OSError if `srun` cannot be started."""
        name, minutes = f"--job-name={contract.id}", f"--time={self.minutes(contract)}"
        arguments = [name, minutes, *self.needs(contract), *self.request.executor_options]
        return Job(arguments, [*HARNESS, contract.id, *self.options(contract)], self.root, self.name)

    def profile(self, contract: Contract) -> Profile:
        """Return the profile whose resources a job asks for: that of the command line, else `full`."""
        wanted = "full" if self.request.profile == "auto" else self.request.profile
        return contract.profiles.get(wanted) or next(iter(contract.profiles.values()))

    def options(self, contract: Contract) -> list[str]:
        """Return the options of a job's `harness run`, which prints its events as lines.

        The profile is that whose resources the job asked for: `auto` falls back if the node's GPU does not work.
        """
        request = replace(self.request.of(contract), profile=self.profile(contract).name)
        jobs = [] if request.jobs is None else ["--jobs", str(request.jobs)]
        where = ["--evidence", str(self.evidence.absolute()), "--event-lines"]
        key = [] if request.key is None else ["--key", str(request.key.absolute())]
        return [*request.arguments(), *jobs, *where, *key]

    def minutes(self, contract: Contract) -> int:
        """Return the time limit of all trials of a claim, one after the other."""
        trials = 1 + (len(contract.mutants) if self.request.mutants else 0)
        return math.ceil((trials * self.profile(contract).seconds + _MARGIN_SECONDS) / 60)

    def needs(self, contract: Contract) -> list[str]:
        """Return the options of `srun` that follow from a contract: GPUs, their compute capability, processors."""
        request, requires, options = self.request, self.profile(contract).requires, list[str]()
        wants_gpu = requires["device"] == "cuda" or request.device.startswith("cuda") or "gpus" in requires
        if wants_gpu and request.device != "cpu":
            options.append(f"--gres=gpu:{requires.get('gpus', 1)}")
            least, target = requires.get("compute_capability"), contract.target.get("compute_capability")
            if named := self._nodes(least, target):
                options.append(f"--constraint={named}")
        if request.jobs is not None:
            options.append(f"--cpus-per-task={request.jobs}")
        return options

    def _nodes(self, least: str | None, target: str | None) -> str:
        """Return a constraint on the features of nodes, such as sm_90: the target's, else all that suffice.

        It is empty if no node has such a feature. The job itself then finds out.
        """
        there = {int(number) for number in _CAPABILITY.findall(self.features)}
        if target is not None and _number(target) in there:
            return f"sm_{_number(target)}"
        if least is None or not there:
            return ""
        enough = sorted(number for number in there if number >= _number(least))
        return "|".join(f"sm_{number}" for number in enough) or f"sm_{_number(least)}"

    @cached_property
    def features(self) -> str:
        """The features of all nodes."""
        return ask(["sinfo", "--noheader", "--format=%f"]) or ""


def _number(capability: str) -> int:
    return int(capability.replace(".", ""))


def obstacle() -> str:
    """Return why no job can be submitted from here, with the remedy; empty if one can."""
    if "SLURM_JOB_ID" in os.environ:
        job = os.environ["SLURM_JOB_ID"]
        return f"this shell runs in job {job} of Slurm already; leave out --executor slurm to run on its resources"
    lacking = [name for name in ("srun", "squeue", "scancel") if shutil.which(name) is None]
    return f"{lacking[0]} is not on PATH; submit from a login node of the cluster" if lacking else ""
