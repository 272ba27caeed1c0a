"""Selects the claims that are due on this machine: no evidence from its device class covers the present code.

A claim is covered if a bundle of the same or a larger profile decides its status on the class of device that it would
run on (see `harness.evidence.claim_status`). A FAIL covers too: the claim is FALSIFIED, and another run would not
change that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from harness.base.device import DeviceClass
from harness.base.vocabulary import Status, Verdict
from harness.contract import Contract
from harness.contract.project import Project
from harness.evidence.claim_status import Cell, ClaimStatus
from harness.evidence.index import Unreadable, Watch
from harness.evidence.survey import Survey
from harness.machine.host import Host
from harness.machine.requirements import out_of_reach
from harness.running.plan import make_plan
from harness.running.request import RunRequest

__all__ = ["Because", "Due", "due", "never_here", "why_due"]


@final
@dataclass(frozen=True)
class Because:
    """Why a claim is due on a device class. `harness.report.messages.due_text` formats it."""

    device: DeviceClass
    cell: Cell | None
    """The status there; None if the claim never ran there."""
    only_reduced: bool = False
    """Whether the evidence covers only the reduced profile, while the full profile can run here."""
    cannot: str = ""
    """Why the requested profile cannot run here; empty if it can."""


@final
@dataclass(frozen=True)
class Due:
    """The claims of a request, divided into due and other ones, each with a reason or a status."""

    due: tuple[tuple[Contract, Because | None], ...]
    """The claims to run, with reasons; None if they run whatever their evidence."""
    covered: tuple[tuple[Contract, Cell], ...]
    falsified: tuple[tuple[Contract, Cell], ...]
    """The claims that a FAIL covers."""
    elsewhere: tuple[tuple[Contract, str], ...]
    """The claims that cannot run here, with reasons. With a requested profile, a claim is due, unless this machine
    lacks memory or GPUs for it."""
    unreadable: tuple[Unreadable, ...]
    """Unreadable bundles. A FAIL can be among them."""

    @property
    def standing(self) -> list[Verdict]:
        """The verdicts of claims that do not run, as they count for the exit status: FAIL for news."""
        return [Verdict.FAIL if cell.is_news else Verdict.PASS for _, cell in (*self.covered, *self.falsified)]


def due(
    project: Project,
    host: Host,
    request: RunRequest,
    watch: Watch | None = None,
) -> Due:
    """Determine which claims of a request are due on this machine.

    Args:
        watch: see `harness.evidence.index.read`.
    """
    survey = Survey.of(project, request.evidence or project.evidence, watch=watch)
    claims = {claim.id: claim for claim in survey.claims}
    pending: list[tuple[Contract, Because]] = []
    elsewhere: list[tuple[Contract, str]] = []
    covered: list[tuple[Contract, Cell]] = []
    falsified: list[tuple[Contract, Cell]] = []
    for contract in request.contracts:
        plan = make_plan(contract, host, request)
        if plan.obstacle and (request.profile not in contract.profiles or _is_out_of_reach(contract, host, request)):
            elsewhere.append((contract, plan.obstacle))
            continue
        device = DeviceClass.of(plan.device)
        claim = claims[contract.id]
        # A profile that the user names and that cannot run is NOT_MEASURED, as without --stale.
        why = (
            Because(device, None, cannot=plan.obstacle) if plan.obstacle else why_due(claim, device, plan.profile.name)
        )
        if why:
            pending.append((contract, why))
        else:
            cell = claim.cells[device]
            (falsified if cell.status is Status.FALSIFIED else covered).append((contract, cell))
    return Due(tuple(pending), tuple(covered), tuple(falsified), tuple(elsewhere), survey.contents.unreadable)


def never_here(host: Host, request: RunRequest) -> Due:
    """Divide the claims of a request into those to run and those that this machine can never run in their profile."""
    obstacles = [(contract, make_plan(contract, host, request).obstacle) for contract in request.contracts]
    out = {contract.id: why for contract, why in obstacles if why and _is_out_of_reach(contract, host, request)}
    due = tuple((contract, None) for contract in request.contracts if contract.id not in out)
    return Due(due, (), (), tuple((contract, why) for contract, why in obstacles if contract.id in out), ())


def _is_out_of_reach(contract: Contract, host: Host, request: RunRequest) -> bool:
    """Whether the requested profile needs more memory or GPUs than this machine has."""
    profile = contract.profiles.get(request.profile)
    return profile is not None and bool(out_of_reach(profile.requires, host))


def why_due(claim: ClaimStatus, device: DeviceClass, profile: str) -> Because | None:
    """Return why evidence does not cover a claim on a device class in a profile; None if it does."""
    cell = claim.cells.get(device)
    if cell is None or not cell.bundles:
        return Because(device, None)
    if cell.status in (Status.STALE, Status.UNRUN) or cell.decided_by is None:
        return Because(device, cell)
    if profile == "full" and cell.decided_by.profile != "full":
        return Because(device, cell, only_reduced=True)
    return None
