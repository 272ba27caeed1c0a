"""Builds the runner for a request: an engine on this machine, or what another executor gives."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Protocol

from harness.base.plugins import plugins
from harness.contract import Contract, ContractError
from harness.contract.consistency import credentials
from harness.contract.project import Project
from harness.evidence.seal import Seal
from harness.execution.executor import Executors
from harness.execution.local_executor import LocalExecutors
from harness.machine.cache_folder import made_cache_folder
from harness.machine.host import Host
from harness.running.durations import Durations
from harness.running.engine import Engine
from harness.running.events import ClaimFinished, ClaimPlanned, Handler, Remarked, RunFinished
from harness.running.plan import with_subject
from harness.running.request import RunRequest

__all__ = ["EXECUTORS", "LOCAL", "Executor", "Runner", "Unmeasured", "compose"]

EXECUTORS = "harness.executors"
"""The group of entry points that name executors: modules, or other objects, with the functions of `Executor`."""
LOCAL = "local"
"""The executor that runs claims on this machine."""
Unmeasured = Callable[[Contract, RunRequest, str], tuple[ClaimPlanned, ClaimFinished]]
"""Seals a claim without measurements, for the reason given."""


class Runner(Protocol):
    """Runs the claims of a request."""

    def run(self, request: RunRequest) -> RunFinished:
        """Run them, and return what came of them."""


class Executor(Protocol):
    """Where claims run."""

    def obstacle(self) -> str:
        """Why no claim can run from here, with the remedy; empty if one can."""

    def runner(
        self,
        project: Project,
        request: RunRequest,
        unmeasured: Unmeasured,
        emit: Handler,
        remark: Callable[[str], None],
    ) -> Runner:
        """The runner for a request. It emits the events of the engine (`harness.running.events`).

        Args:
            remark: takes each other line for the user.
        """


def compose(
    project: Project,
    host: Host,
    request: RunRequest,
    seal: Seal,
    emit: Handler,
    remark: Callable[[str], None],
    executors: Callable[[], Executors] | None = None,
) -> Runner:
    """The runner for a request.

    Args:
        seal: writes the bundle of a claim.
        emit: takes every event, from several threads.
        remark: takes each other line that an executor has for the user.
        executors: makes what runs the trials on this machine; None for what starts and ends with this run.

    Raises:
        NoCacheFolderError: there is no folder for the caches of trials.
        ContractError: a contract holds a secret.
    """
    for contract in request.contracts:
        if secrets := list(credentials(contract)):
            raise ContractError(contract.path, secrets)
    cache = made_cache_folder()
    others = {contract.id: request.of(contract).subject for contract in request.contracts}

    def of_this_run() -> LocalExecutors:
        return LocalExecutors(
            project,
            [with_subject(contract, request) for contract in request.contracts],
            cache,
            {claim: other.admits for claim, other in others.items() if other is not None},
            lambda claim, text: emit(Remarked(claim, text)),
            request.isolate,
        )

    command = shlex.join(["harness", "run", *request.arguments()])
    engine = Engine(project, host, executors or of_this_run, seal, emit, command, Durations(project.root))
    if request.executor == LOCAL:
        return engine
    executor: Executor = plugins(EXECUTORS)[request.executor].load()
    return executor.runner(project, request, engine.unmeasured, emit, remark)
