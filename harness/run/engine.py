"""The engine: runs claims and emits events. It knows no spec and no reporter.

For each claim: plan, lease the device, run the trials of the subject and of the mutants, judge each, derive the
verdict, seal the bundle.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.base.device import Device
from harness.base.redaction import Redactor, allowed_environment
from harness.base.vocabulary import Verdict
from harness.contract import Contract, Mutant
from harness.contract.project import Project
from harness.evidence.result import ClaimResult, Seal
from harness.execution.executor import Executor, TrialResult
from harness.execution.lease import CPU, Holder, LeaseUnavailable, WaitInterrupted, lease, named
from harness.execution.logs import Log
from harness.judging.judge import requested
from harness.judging.record import MutantRecord, Record
from harness.judging.verdict import MutantOutcome, claim_verdict
from harness.machine import git, provenance
from harness.machine.host import Gpu, Host
from harness.machine.requirements import shortfalls
from harness.run import events
from harness.run.interruption import Interruption
from harness.run.plan import Options, Plan, plan
from harness.run.trials import TrialRun, Trials, unmeasured

__all__ = ["Engine", "ExecutorFactory"]

ExecutorFactory = Callable[[Contract, Gpu | None], Executor]


class Engine:
    """Runs claims one after the other, and the trials of a claim side by side where its lease allows it."""

    def __init__(
        self, project: Project, host: Host, executor: ExecutorFactory, seal: Seal, emit: events.Handler, command: str
    ) -> None:
        """Args:
        seal: writes the bundle of a claim.
        emit: takes every event; called from one thread at a time per trial, so it must be thread-safe.
        command: what the user typed, without the claims, for the record.
        """
        self._project, self._host, self._executor = project, host, executor
        self._seal, self._emit, self._command = seal, emit, command
        commit = git.commit(project.root, outputs=[project.evidence.relative_to(project.root).as_posix()])
        self._commit = asdict(commit)

    def run(self, contracts: Sequence[Contract], options: Options) -> events.RunFinished:
        """Run claims. Where the user interrupts, the claim at hand is sealed with what it measured."""
        started, records, awaited = time.monotonic(), list[Record](), ""
        with Interruption() as interruption:
            self._emit(events.RunStarted(tuple(contract.id for contract in contracts)))
            for contract in contracts:
                try:
                    records.append(self._claim(contract, options, interruption))
                except WaitInterrupted as wait:
                    awaited = wait.holders
                    break
                except KeyboardInterrupt:
                    break  # it was still waiting for its imports
                if interruption.requested:
                    break
            took = time.monotonic() - started
            finished = events.RunFinished(len(contracts), tuple(records), took, interruption.requested, awaited)
            self._emit(finished)
        return finished

    def unmeasured(
        self, contract: Contract, options: Options, reason: str
    ) -> tuple[events.ClaimPlanned, events.ClaimFinished]:
        """Seal a claim that could not be run, for a reason that this machine knows nothing of; emits nothing."""
        began = datetime.now(UTC)
        contract = _of(contract, options)
        course = replace(plan(contract, self._host, options), obstacle=reason)
        trials = unmeasured(contract, course, options, reason)
        record = self._record(contract, course, options, trials, began, 0.0)
        record, bundle = self._sealed(
            ClaimResult(record, contract, trials.subject, trials.mutants, self._environment())
        )
        return _planned(contract, course, []), events.ClaimFinished(record, bundle)

    def _claim(self, contract: Contract, options: Options, interruption: Interruption) -> Record:
        began, clock = datetime.now(UTC), time.monotonic()
        contract = _of(contract, options)
        course = plan(contract, self._host, options)
        runnable = self._runnable(contract, course, options)
        self._emit(_planned(contract, course, runnable))
        with ExitStack() as resources:  # the executor's scratch folder, artifacts in it, is needed until the seal
            trials = self._trials(contract, course, options, runnable, resources, interruption)
            record = self._record(contract, course, options, trials, began, time.monotonic() - clock)
            record, bundle = self._sealed(
                ClaimResult(record, contract, trials.subject, trials.mutants, self._environment())
            )
        self._emit(events.ClaimFinished(record, bundle))
        return record

    def _record(
        self, contract: Contract, course: Plan, options: Options, trials: Trials, began: datetime, seconds: float
    ) -> Record:
        decided = claim_verdict(trials.judgment, trials.outcomes, skipped=not options.mutants)
        observation = trials.subject.observation
        return Record(
            **{
                name: getattr(contract, name)
                for name in ("id", "issue", "spec", "title", "claim", "falsifier", "subject", "target")
            },
            run=f"{began:%Y-%m-%dT%H%M%SZ}-{_slug(course.device)}-{secrets.token_hex(3)}",
            verdict=decided.verdict,
            reason=decided.reason,
            proven=decided.proven,
            profile=course.profile.name,
            profile_reason=course.reason,
            overrides=dict(options.parameters),
            subject_parameters={} if options.external is None else dict(options.external.parameters),
            mutants_skipped=not options.mutants,
            device=course.device,
            requested=requested(contract, course.profile.name, observation.parameters, course.device.type),
            resolved=observation.resolved,
            seed=options.seed,
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
            logs={name: _log_identity(getattr(trials.subject, name)) for name in ("stdout", "stderr")},
            command=f"{self._command} {contract.id}",
        )

    def _sealed(self, result: ClaimResult) -> tuple[Record, Path | None]:
        """A verdict without evidence is none: where the bundle cannot be written, nothing counts as measured."""
        try:
            return result.record, self._seal(result)
        except OSError as error:
            verdict = Verdict.FAIL if result.record.verdict is Verdict.FAIL else Verdict.NOT_MEASURED
            return replace(
                result.record, verdict=verdict, reason=f"the bundle could not be written: {error}", proven=False
            ), None

    def _runnable(self, contract: Contract, course: Plan, options: Options) -> list[tuple[Mutant, str]]:
        """Every mutant with what keeps it from running; empty where nothing does."""
        pairs: list[tuple[Mutant, str]] = []
        for mutant in contract.mutants:
            lacks = shortfalls(mutant.requires, self._host) if mutant.requires else []
            if options.external is not None and options.external.is_over and not lacks:
                lacks = shortfalls(course.profile.requires, self._host)  # reading a run needs less than running mutants
            if mutant.requires.get("device") == "cuda" and course.gpu is None and not lacks:
                lacks = ["needs a CUDA GPU; this run is on the CPU"]
            unseen = [clause for clause in mutant.violates if clause in contract.unjudged(course.profile.name)]
            if unseen and not lacks:
                lacks = [f"violates {', '.join(unseen)}, which the {course.profile.name} profile does not judge"]
            pairs.append((mutant, "mutants were skipped (--no-mutants)" if not options.mutants else "; ".join(lacks)))
        return pairs

    def _trials(
        self,
        contract: Contract,
        course: Plan,
        options: Options,
        runnable: Sequence[tuple[Mutant, str]],
        resources: ExitStack,
        interruption: Interruption,
    ) -> Trials:
        if course.obstacle:
            return unmeasured(contract, course, options, course.obstacle)
        try:
            # The executor starts while the lease is taken, but imports the falsifier's code only under it.
            with interruption.immediate():
                executor: Executor = resources.enter_context(self._executor(contract, course.gpu))
            resources.enter_context(self._lease(contract, course, interruption))
            with interruption.immediate():
                sources = executor.imports().sources
        except LeaseUnavailable as error:
            return unmeasured(contract, course, options, str(error))
        except OSError as error:
            return unmeasured(contract, course, options, f"trials cannot be started here: {error}")
        run = TrialRun(self._emit, contract, course, options, executor, self._host.cpu_count)
        return run.run(runnable, sources, interruption)

    def _lease(self, contract: Contract, course: Plan, interruption: Interruption) -> AbstractContextManager[object]:
        def waiting(holders: tuple[Holder, ...]) -> None:
            self._emit(events.ClaimWaiting(contract.id, named(holders)))

        return lease(
            course.gpu or CPU,
            mode="exclusive" if contract.exclusive else "shared",
            holder=contract.id,
            wait_seconds=course.profile.lease_seconds,
            on_wait=waiting,
            interrupted=lambda: interruption.requested,
        )

    def _environment(self) -> dict[str, Any]:
        return {
            "host": _plain(asdict(self._host)),
            "software": provenance.software(self._host),
            "variables": Redactor().mask_json(allowed_environment()),
        }


def _of(contract: Contract, options: Options) -> Contract:
    """The contract with the subject that the command line asks for."""
    if options.external is not None:
        return replace(contract, subject=options.external.entry_point(contract.falsifier))
    return contract if options.subject is None else replace(contract, subject=options.subject)


def _planned(contract: Contract, course: Plan, runnable: Sequence[tuple[Mutant, str]]) -> events.ClaimPlanned:
    mutants = tuple(mutant.id for mutant, obstacle in runnable if not obstacle)
    return events.ClaimPlanned(
        contract, course.profile.name, course.reason, course.device, mutants, course.parallel, course.obstacle
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
    )


def _log_identity(log: Log) -> dict[str, Any]:
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
