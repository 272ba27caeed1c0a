"""Runs a request from Python: for `harness.run` and for the pytest plugin."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contract.project import Project
from harness.evidence.seal import Sealer
from harness.machine.host import Host, probe
from harness.run.compose import compose
from harness.run.events import ClaimFinished, Event, Handler, RunFinished
from harness.run.relay import Relay
from harness.run.request import RunRequest

__all__ = ["perform"]


def perform(
    project: Project, request: RunRequest, handlers: Sequence[Handler] = (), host: Host | None = None
) -> tuple[RunFinished, tuple[ClaimFinished, ...]]:
    """Run the claims of a request on this machine, and seal their bundles.

    Args:
        handlers: called with every event, one at a time, in a thread of their own. One that raises gets no more events.
        host: what this machine offers, if it is known.

    Returns:
        The end of the run, and the claims with their bundles, in the order of the request.

    Raises:
        SealError: the folder for bundles cannot be written. Nothing has run.
        NoCacheFolderError: there is no folder for the caches of trials. Nothing has run.
    """
    claims: list[ClaimFinished] = []

    def keep(event: Event) -> None:
        if isinstance(event, ClaimFinished):
            claims.append(event)

    sealer = Sealer(request.evidence or project.evidence)
    sealer.prepare()
    relay = Relay([keep, *handlers])
    try:
        runner = compose(project, host or probe(project.root), request, sealer.seal, relay, lambda line: None)
        finished = runner.run(request)
    finally:
        relay.close()
    order = [contract.id for contract in request.contracts]
    return finished, tuple(sorted(claims, key=lambda claim: order.index(claim.record.id)))
