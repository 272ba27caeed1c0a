"""Runs a request from Python: for `harness.run` and for the pytest plugin."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from harness.base.shortening import described
from harness.contract import Contract
from harness.contract.entry_point import locate
from harness.contract.other_subject import Subject, named
from harness.contract.project import Project
from harness.evidence.seal import Sealer
from harness.execution.executor import Executors
from harness.machine.host import Host, probe
from harness.running.compose import compose
from harness.running.events import ClaimFinished, Event, Handler, Relay, RunFinished
from harness.running.request import RunRequest

__all__ = ["default_subjects", "perform", "run"]


def perform(
    project: Project,
    request: RunRequest,
    handlers: Sequence[Handler] = (),
    host: Host | None = None,
    executors: Callable[[], Executors] | None = None,
) -> tuple[RunFinished, tuple[ClaimFinished, ...]]:
    """Run the claims of a request on this machine, and seal their bundles.

    Args:
        handlers: called with every event, one at a time, in a separate thread. One that raises gets no more events,
            and a RuntimeWarning follows.
        host: the properties of this machine, if known.
        executors: creates the executors, if several runs share them.

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
        here = host or probe(project.root)
        runner = compose(project, here, request, sealer.seal, relay, lambda line: None, executors)
        finished = runner.run(request)
    finally:
        for handler, error in relay.close():
            warnings.warn(f"{handler!r} gets no more events: {described(error)}", RuntimeWarning, stacklevel=2)
    order = [contract.id for contract in request.contracts]
    return finished, tuple(sorted(claims, key=lambda claim: order.index(claim.record.id)))


def run(
    ids: str | Iterable[str],
    *,
    profile: str = "auto",
    device: str = "auto",
    mutants: bool = True,
    seed: int = 0,
    jobs: int | None = None,
    evidence: str | Path | None = None,
    watch: Handler | None = None,
) -> tuple[ClaimFinished, ...]:
    """Run claims of the project of the current folder, as `harness run` does, and seal a bundle for each.

        (done,) = harness.run("F-DISTILL-SMOKE-001", profile="reduced")
        done.record.verdict             # Verdict.PASS
        harness.steps(done.bundle)      # the step series, as a DataFrame

    Nothing is printed. After Ctrl-C, the results so far are sealed and KeyboardInterrupt is raised.

    Args:
        ids: the id of a claim, or several; globs such as "F-APR-*" too.
        profile: "full", "reduced", or "auto": full if this machine meets its requirements, else reduced.
        device: "cpu", "cuda", "cuda:N" or "auto".
        mutants: False skips the mutants. A PASS is then unproven (`record.proven` is False).
        seed: the seed of every trial, 0 or more.
        jobs: the number of parallel trials; by default, the plan decides. Trials that measure time run alone.
        evidence: the folder for bundles; by default, the project's.
        watch: called with every event (`harness.running.events`), one at a time, in a thread of its own. If it raises,
            it gets no more events, and a RuntimeWarning follows.

    Returns:
        One `ClaimFinished` for each claim, in the order of the ids: `record` has the verdict, its reason, every clause
        and mutant, and times in seconds; `bundle` is the folder of the evidence, or None if it could not be written. A
        verdict that is not PASS raises nothing.

    Raises:
        ProjectError: the current folder belongs to no project, or the project has no such claim.
        ContractError: a contract is refused. Nothing has run.
        ValueError: an argument is wrong, or there is no id. Nothing has run. The two above are ValueErrors, too.
        OSError: the folder for bundles cannot be written. Nothing has run.
        KeyboardInterrupt: the run was interrupted.
    """
    project = Project.find()
    chosen = project.matching([ids] if isinstance(ids, str) else ids)
    if not chosen:
        raise ValueError("name at least one claim")
    contracts = [project.contract(name) for name in chosen]
    request = RunRequest(
        contracts=contracts,
        subjects=default_subjects(contracts, project),
        profile=profile,
        device=device,
        mutants=mutants,
        seed=seed,
        jobs=jobs,
        evidence=None if evidence is None else Path(evidence),
    )
    finished, claims = perform(project, request, () if watch is None else (watch,))
    if finished.interrupted:
        raise KeyboardInterrupt
    return claims


def default_subjects(contracts: Iterable[Contract], project: Project) -> dict[str, Subject]:
    """Return the subjects that the project's settings name, by claim.

    Raises:
        SubjectRefused, EntryPointError: a subject is refused.
        PluginError: its kind cannot be imported.
    """
    subjects = {}
    for contract in contracts:
        if text := project.subject_of(contract.id):
            if (subject := named(text, project, is_default=True)) is None:
                locate(text, project.search)
            subjects[contract.id] = Subject.at(text) if subject is None else subject.subject(contract, project)
    return subjects
