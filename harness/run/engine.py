"""The engine: runs claims and emits events. It is independent of specs and reports.

For each claim: plan, lease the device, run the trials of the subject and of the mutants, judge each, derive the
verdict, seal the bundle.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.base.device import Device
from harness.base.redaction import Redactor, allowed_environment
from harness.base.vocabulary import Verdict
from harness.contract import Contract, Mutant
from harness.contract.project import Project
from harness.contract.ratio import ratios
from harness.contract.reasons import Reason, ReasonCode
from harness.contract.unwritten import unwritten_code, unwritten_texts
from harness.evidence.seal import ClaimResult, Environment, Seal
from harness.evidence.trial_files import series_of
from harness.execution.executor import Executor, Executors, TrialResult
from harness.execution.lease import CPU, Holder, LeaseUnavailable, WaitInterrupted, lease, named
from harness.execution.logs import Log
from harness.judging.judge import requested
from harness.judging.record import LogIdentity, MutantRecord, Record, RecordedCommit
from harness.judging.verdict import MutantOutcome, claim_verdict
from harness.machine import git, provenance
from harness.machine.host import Host
from harness.run import events
from harness.run.interruption import Interruption
from harness.run.plan import Plan, make_plan
from harness.run.request import RunRequest
from harness.run.trials import TrialRun, Trials, unmeasured

__all__ = ["Engine"]


class Engine:
    """Runs claims one after the other. Trials of a claim run in parallel if its lease allows it."""

    def __init__(
        self,
        project: Project,
        host: Host,
        executors: Callable[[], Executors],
        seal: Seal,
        emit: events.Handler,
        command: str,
    ) -> None:
        """Args:
        executors: makes what runs the trials of one run.
        seal: writes the bundle of a claim.
        emit: takes every event. It must be thread-safe: trials call it from their own threads.
        command: the command line without the claims, for the record.
        """
        self._project, self._host, self._executors = project, host, executors
        self._seal, self._emit, self._command = seal, emit, command
        commit = git.commit(project.root, outputs=[project.evidence.relative_to(project.root).as_posix()])
        self._commit: RecordedCommit = {"revision": commit.revision, "dirty": commit.dirty, "reason": commit.reason}

    def run(self, request: RunRequest) -> events.RunFinished:
        """Run claims. After an interruption, the current claim is sealed with its measurements so far."""
        started, records, awaited = time.monotonic(), list[Record](), ""
        with Interruption() as interruption, closing(self._executors()) as executors:
            self._emit(events.RunStarted(tuple(contract.id for contract in request.contracts)))
            for contract in request.contracts:
                try:
                    records.append(self._claim(contract, request, executors, interruption))
                except WaitInterrupted as wait:
                    awaited = wait.holders
                    break
                except KeyboardInterrupt:
                    break  # no trial has started yet
                if interruption.requested or request.ends_with(records[-1].verdict):
                    break
            took = time.monotonic() - started
            finished = events.RunFinished(len(request.contracts), tuple(records), took, interruption.requested, awaited)
            self._emit(finished)
        return finished

    def unmeasured(
        self, contract: Contract, request: RunRequest, reason: str
    ) -> tuple[events.ClaimPlanned, events.ClaimFinished]:
        """Seal a claim that could not run, for a reason from outside of this machine. Emits nothing."""
        began = datetime.now(UTC)
        plan = make_plan(contract, self._host, request)
        obstacle = Reason(ReasonCode.NOTHING_RAN, text=reason)
        plan = replace(plan, obstacle=reason, mutants=tuple((mutant, obstacle) for mutant in plan.contract.mutants))
        return _planned(plan), self._finished(plan, request, unmeasured(plan, request), began, 0.0)

    def _claim(
        self, contract: Contract, request: RunRequest, executors: Executors, interruption: Interruption
    ) -> Record:
        began, clock = datetime.now(UTC), time.monotonic()
        plan = make_plan(contract, self._host, request)
        self._emit(_planned(plan))
        with ExitStack() as resources:  # sealing needs the artifacts in the executor's scratch folder
            trials = self._trials(plan, request, executors, resources, interruption)
            finished = self._finished(plan, request, trials, began, time.monotonic() - clock)
        self._emit(finished)
        return finished.record

    def _finished(
        self, plan: Plan, request: RunRequest, trials: Trials, began: datetime, seconds: float
    ) -> events.ClaimFinished:
        """Seal the result of a claim. If the bundle cannot be written, the claim is NOT_MEASURED."""
        record = self._record(plan, request, trials, began, seconds)
        result = ClaimResult(record, plan.contract, trials.subject, trials.mutants, self._environment())
        observed = trials.subject.observation
        close = ratios(plan.contract, observed.measurements, observed.parameters, observed.device)
        if to_write := _unwritten(plan.contract, self._project):
            return events.ClaimFinished(record, None, close, f"not written yet: {to_write}")
        try:
            return events.ClaimFinished(record, self._seal(result), close)
        except OSError as error:
            verdict = Verdict.FAIL if record.verdict is Verdict.FAIL else Verdict.NOT_MEASURED
            reason = Reason(ReasonCode.UNSEALED, text=str(error))
            return events.ClaimFinished(replace(record, verdict=verdict, reason=reason, proven=False), None)

    def _record(self, plan: Plan, request: RunRequest, trials: Trials, began: datetime, seconds: float) -> Record:
        decided = claim_verdict(trials.judgment, trials.outcomes, skipped=not request.mutants)
        observation = trials.subject.observation
        contract = plan.contract
        return Record(
            id=contract.id,
            issue=contract.issue,
            spec=contract.spec,
            title=contract.title,
            claim=contract.claim,
            falsifier=contract.falsifier,
            subject=contract.subject,
            target=contract.target,
            run=f"{began:%Y-%m-%dT%H%M%SZ}-{_slug(plan.device)}-{secrets.token_hex(3)}",
            verdict=decided.verdict,
            reason=decided.reason,
            proven=decided.proven,
            profile=plan.profile.name,
            profile_reason=plan.reason,
            overrides=dict(request.parameters),
            subject_parameters={} if request.external is None else dict(request.external.parameters),
            mutants_skipped=not request.mutants,
            isolated=request.isolate,
            device=plan.device,
            requested=requested(contract, plan.profile.name, observation.parameters, plan.device.type),
            resolved=observation.resolved,
            seed=request.seed,
            clauses=trials.judgment.clauses,
            unjudged=trials.judgment.unjudged,
            mutants=tuple(
                _mutant_record(mutant, outcome, trials.mutants.get(mutant.id))
                for mutant, outcome in zip(contract.mutants, trials.outcomes, strict=True)
            ),
            started=began.isoformat(timespec="seconds"),
            seconds=round(seconds, 3),
            trial_seconds=round(trials.subject.seconds, 3),
            contract_digest=contract.digest,
            sources=trials.sources,
            harness=provenance.harness_identity(),
            commit=self._commit,
            logs={"stdout": _log_identity(trials.subject.stdout), "stderr": _log_identity(trials.subject.stderr)},
            series=series_of(trials.subject),
            command=f"{self._command} {contract.id}",
        )

    def _trials(
        self,
        plan: Plan,
        request: RunRequest,
        executors: Executors,
        resources: ExitStack,
        interruption: Interruption,
    ) -> Trials:
        if plan.obstacle:
            return unmeasured(plan, request)
        try:
            # The executor starts before the lease is held, but imports the falsifier's code only after.
            with interruption.immediate():
                executor: Executor = resources.enter_context(executors(plan.contract, plan.gpu))
            resources.enter_context(self._lease(plan, interruption))
            self._emit(events.TrialPhase(plan.contract.id, events.SUBJECT, "importing"))
            with interruption.immediate():
                sources = executor.imports().sources
        except LeaseUnavailable as error:
            return unmeasured(replace(plan, obstacle=str(error)), request)
        except OSError as error:
            return unmeasured(replace(plan, obstacle=f"trials cannot be started here: {error}"), request)
        return TrialRun(self._emit, plan, request, executor, self._host.cpu_count).run(sources, interruption)

    def _lease(self, plan: Plan, interruption: Interruption) -> AbstractContextManager[object]:
        def waiting(holders: tuple[Holder, ...]) -> None:
            self._emit(events.ClaimWaiting(plan.contract.id, named(holders)))

        return lease(
            plan.gpu or CPU,
            mode="exclusive" if plan.contract.exclusive else "shared",
            holder=plan.contract.id,
            wait_seconds=plan.profile.lease_seconds,
            on_wait=waiting,
            interrupted=lambda: interruption.requested,
        )

    def _environment(self) -> Environment:
        return {
            "host": _plain(asdict(self._host)),
            "software": provenance.software(self._host),
            "variables": Redactor().mask_json(allowed_environment()),
        }


def _unwritten(contract: Contract, project: Project) -> str:
    """The first thing that `harness new` left to be written; empty if everything is written."""
    for place, _ in unwritten_texts(contract.document):
        return f"{place} of {contract.path.name}"
    for _, path, line in unwritten_code(contract, project.search):
        return f"{path.relative_to(project.root)}:{line}"
    return ""


def _planned(plan: Plan) -> events.ClaimPlanned:
    runnable = tuple(mutant.id for mutant, obstacle in plan.mutants if not obstacle)
    return events.ClaimPlanned(
        plan.contract, plan.profile.name, plan.reason, plan.device, runnable, plan.parallel, plan.obstacle
    )


def _mutant_record(mutant: Mutant, outcome: MutantOutcome, trial: TrialResult | None) -> MutantRecord:
    return MutantRecord(
        mutant.id,
        mutant.subject,
        mutant.defect,
        mutant.violates,
        outcome.fate,
        outcome.reason,
        outcome.failed,
        round(trial.seconds, 3) if trial else None,
        outcome.values,
    )


def _log_identity(log: Log) -> LogIdentity:
    return {"size": log.size, "sha256": log.digest}


def _slug(device: Device) -> str:
    name = device.name.lower().removeprefix("nvidia").strip() if device.is_cuda else "cpu"
    return "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")[:24] or "gpu"


def _plain(value: Any) -> Any:
    """A dataclass's fields as JSON: paths become text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
