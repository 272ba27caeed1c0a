"""Creates the runner of a request: the engine on this machine, or that of another executor."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from harness.base.plugins import plugins
from harness.contract import Contract, ContractError
from harness.contract.consistency import credentials
from harness.contract.project import Project
from harness.execution.executor import Executors
from harness.execution.local_executor import LocalExecutors
from harness.machine.cache_folder import made_cache_folder
from harness.machine.host import Host
from harness.running.plan import with_subject
from harness.running.request import RunRequest

if TYPE_CHECKING:
    from harness.evidence.seal import Seal
    from harness.running.events import ClaimFinished, ClaimPlanned, Handler, RunFinished

__all__ = ["EXECUTORS", "LOCAL", "Executor", "Runner", "Unmeasured", "compose", "local_executors"]

EXECUTORS = "harness.executors"
"""The entry-point group of executors: modules or other objects with the functions of `Executor`."""
LOCAL = "local"
"""The executor that runs claims on this machine."""
Unmeasured = Callable[[Contract, RunRequest, str], "tuple[ClaimPlanned, ClaimFinished]"]
"""Seals a claim without measurements, for the reason given."""


class Runner(Protocol):
    """Runs the claims of a request."""

    def run(self, request: RunRequest) -> RunFinished:
        """Run the claims, and return the end of the run."""


class Executor(Protocol):
    """A place to run claims, such as a cluster."""

    def obstacle(self) -> str:
        """Return why claims cannot run from here, with the remedy; empty if they can."""

    def runner(
        self,
        project: Project,
        request: RunRequest,
        unmeasured: Unmeasured,
        emit: Handler,
        remark: Callable[[str], None],
    ) -> Runner:
        """Return the runner of a request. It emits the events of the engine (`harness.running.events`).

        Args:
            remark: called with each further line for the user.
        """


def local_executors(project: Project, request: RunRequest) -> LocalExecutors:
    """Return the executors of a request on this machine. A fork server starts at once, beside further preparations.

    Raises:
        NoCacheFolderError: there is no folder for the caches of trials.
    """
    subjects = {contract.id: request.of(contract).subject for contract in request.contracts}
    return LocalExecutors(
        project,
        [with_subject(contract, request) for contract in request.contracts],
        made_cache_folder(),
        {claim: subject.admits for claim, subject in subjects.items() if subject is not None},
        request.isolate,
    )


def compose(
    project: Project,
    host: Host,
    request: RunRequest,
    seal: Seal,
    emit: Handler,
    remark: Callable[[str], None],
    executors: Callable[[], Executors] | None = None,
    begun: LocalExecutors | None = None,
) -> Runner:
    """Return the runner of a request.

    Args:
        seal: writes the bundle of a claim.
        emit: called with every event, from several threads.
        remark: called with each further line of an executor for the user.
        executors: creates the executors on this machine; None for executors of this run only.
        begun: the executors of this run, if the caller has created them already.

    Raises:
        ContractError: a contract holds a secret.
    """
    from harness.running.engine import Engine  # slow to import; a fork server may start meanwhile
    from harness.running.events import Remarked

    for contract in request.contracts:
        if secrets := list(credentials(contract)):
            raise ContractError(contract.path, secrets)

    def of_this_run() -> LocalExecutors:
        local = begun or local_executors(project, request)
        local.remark = lambda claim, text: emit(Remarked(claim, text))
        return local

    command = shlex.join(["harness", "run", *request.arguments()])
    engine = Engine(project, host, executors or of_this_run, seal, emit, command)
    if request.executor == LOCAL:
        return engine
    executor: Executor = plugins(EXECUTORS)[request.executor].load()
    return executor.runner(project, request, engine.unmeasured, emit, remark)
