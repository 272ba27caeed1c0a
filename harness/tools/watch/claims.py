"""The claims on a watched job: the claim on the job itself, and claims of the project that a watcher can measure in
part.

The project lists its claims, and maps their measurements to the watcher's:

    [tool.harness.watch]
    F-DISTILL-CKPT-PERIOD-001 = { unreadable = "checkpoints_unreadable" }

An undecided measurement is omitted, so its clauses are NOT_MEASURED. A clause that fails stays FAIL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.base import toml
from harness.contract import Contract, ContractError
from harness.contract.other_subject import Subject
from harness.contract.project import Project, ProjectError
from harness.machine.host import Host
from harness.running.request import RunRequest
from harness.tools.watch.checks import CHECKS, measured
from harness.tools.watch.given import Given
from harness.tools.watch.job_state import JobState

__all__ = ["Claim", "claims_of", "job_claim"]

_FEW: Final = 5
"""Losses whose mean is the newest one, as F-DISTILL-SMOKE-001 takes it."""
_LOSSES: Final = ("first_loss", "last_loss")


@dataclass(frozen=True)
class Claim:
    """A claim on the job."""

    contract: Contract
    request: RunRequest
    measurements: Mapping[str, str] | None
    """The watcher's measurement, by the contract's; None if the contract uses the watcher's names."""

    def values(self, job: JobState) -> dict[str, Any]:
        """Return the measurements that the facts so far have decided."""
        if self.measurements is None:
            return {name: value for name, value in measured(job).items() if name in self.contract.measurements}
        known = measured(job) | _losses(job)
        return {name: known[mine] for name, mine in self.measurements.items() if mine in known}


def _losses(job: JobState) -> dict[str, Any]:
    """Return the first and the newest loss once a check has refuted the losses; before, neither is decided."""
    refuted = {refutation.check for refutation in job.refutations} & {"losses_not_finite", "losses_rise"}
    losses = job.telling.losses
    if not refuted or not losses:
        return {}
    last = losses[-_FEW:]
    return dict(zip(_LOSSES, (losses[0], sum(last) / len(last)), strict=True))


def job_claim(contract: Contract, given: Given, host: Host, command: str) -> Claim:
    """Return the claim on the job itself."""
    device = "cuda" if given.device == "cuda" and host.gpus else "cpu"
    return Claim(contract, RunRequest([contract], device=device, command=command), None)


def claims_of(project: Project, of: Callable[[Contract], Subject] | None, command: str, device: str) -> list[Claim]:
    """Return the project's claims that a watcher can measure; none if there is no trainer's file to name.

    Args:
        of: the trainer as the subject of a claim; None if the project has no file of it. device: "cpu" for a job on the
        CPU, because the full profile of a claim may require a GPU.

    Raises:
        ValueError: the project's setting names a claim or a measurement that does not exist.
    """
    try:
        settings = toml.load(project.root / "pyproject.toml")["tool"]["harness"]["watch"]
    except (OSError, LookupError):
        return []
    if of is None:
        return []
    claims = []
    known = {*_LOSSES, *(check.name for check in CHECKS)}
    for name, measurements in settings.items():
        try:
            contract = project.contract(name)
        except (ProjectError, ContractError) as error:
            raise ValueError(f"pyproject.toml: [tool.harness.watch] names {name}: {error}") from error
        for one, mine in measurements.items():
            if one not in contract.measurements or mine not in known:
                raise ValueError(f"pyproject.toml: [tool.harness.watch] {name}: {one} = {mine!r} is no measurement")
        profile = "reduced" if device == "cpu" and "reduced" in contract.profiles else "full"
        profile = profile if profile in contract.profiles else "auto"
        request = RunRequest([contract], profile, subject=of(contract), mutants=False, command=command)
        claims.append(Claim(contract, request, dict(measurements)))
    return claims
