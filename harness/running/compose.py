"""Builds the runner for a request: an engine on this machine, or a dispatcher of Slurm jobs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial

from harness.contract import ContractError
from harness.contract.consistency import credentials
from harness.contract.project import Project
from harness.evidence.seal import Seal
from harness.execution.local_executor import LocalExecutors
from harness.machine.cache_folder import made_cache_folder
from harness.machine.host import Host
from harness.running.durations import Durations
from harness.running.engine import Engine
from harness.running.events import Handler, Remarked
from harness.running.plan import with_subject
from harness.running.request import RunRequest
from harness.running.slurm.dispatcher import Dispatcher
from harness.running.slurm.judged_bundle import judged_bundle
from harness.running.slurm.submission import Submission

__all__ = ["compose"]


def compose(
    project: Project,
    host: Host,
    request: RunRequest,
    seal: Seal,
    emit: Handler,
    remark: Callable[[str], None],
) -> Engine | Dispatcher:
    """The runner for a request.

    Args:
        seal: writes the bundle of a claim.
        emit: takes every event, from several threads.
        remark: takes each other line that a Slurm job writes.

    Raises:
        NoCacheFolderError: there is no folder for the caches of trials.
        ContractError: a contract holds a secret.
    """
    for contract in request.contracts:
        if secrets := list(credentials(contract)):
            raise ContractError(contract.path, secrets)
    cache = made_cache_folder()
    admits = () if request.external is None else request.external.admits

    def executors() -> LocalExecutors:
        return LocalExecutors(
            project,
            [with_subject(contract, request) for contract in request.contracts],
            cache,
            admits,
            lambda claim, text: emit(Remarked(claim, text)),
            request.isolate,
        )

    command = shlex.join(["harness", "run", *request.arguments()])
    engine = Engine(project, host, executors, seal, emit, command, Durations(project.root))
    if request.slurm is None:
        return engine
    submission = Submission(project.root, request.evidence or project.evidence, request)
    judged = partial(judged_bundle, submission.evidence, name=submission.name)
    return Dispatcher(submission.submit, engine.unmeasured, judged, emit, remark)
