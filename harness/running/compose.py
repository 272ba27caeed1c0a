"""Builds the runner for a request: an engine on this machine, or a dispatcher of Slurm jobs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness.contract import Contract, ContractError
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
from harness.running.slurm.detached import DetachedRun
from harness.running.slurm.dispatcher import Dispatcher, Followed
from harness.running.slurm.judged_bundle import JudgedBundle, judged_bundle
from harness.running.slurm.submission import Submission

__all__ = ["compose", "submission_of"]


def compose(
    project: Project,
    host: Host,
    request: RunRequest,
    seal: Seal,
    emit: Handler,
    remark: Callable[[str], None],
    attached: DetachedRun | None = None,
) -> Engine | Dispatcher:
    """The runner for a request.

    Args:
        seal: writes the bundle of a claim.
        emit: takes every event, from several threads.
        remark: takes each other line that a Slurm job writes.
        attached: the run whose jobs run already; None to begin one.

    Raises:
        NoCacheFolderError: there is no folder for the caches of trials.
        ContractError: a contract holds a secret.
    """
    for contract in request.contracts:
        if found := list(credentials(contract)):
            raise ContractError(contract.path, found)
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
    submit: Callable[[Contract], Followed]
    evidence = request.evidence or project.evidence
    if attached is not None:
        tasks, name = attached.tasks(evidence), attached.name
        submit = lambda contract: tasks[contract.id]  # noqa: E731
    elif request.slurm is not None:
        submission = submission_of(project, request)
        submit, name = submission.submit, submission.name
    else:
        return engine
    judged = partial(_judged, evidence, name)
    return Dispatcher(submit, engine.unmeasured, judged, emit, remark)


def _judged(evidence: Path, name: str, contract: Contract, run: str) -> JudgedBundle:
    return judged_bundle(evidence, contract, run, name)


def submission_of(project: Project, request: RunRequest) -> Submission:
    """Make the object that submits the request's jobs."""
    return Submission(project.root, request.evidence or project.evidence, request)
