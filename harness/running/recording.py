"""Makes the record of a claim from the results of its trials, and seals it."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import final

from harness.base.device import Device
from harness.base.redaction import allowed_environment, redactor
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase, Verdict
from harness.contract import Contract, Mutant
from harness.contract.consistency import unwritten_code, unwritten_texts
from harness.contract.installed import is_own
from harness.contract.project import Project
from harness.contract.ratio import ratios
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.seal import ClaimResult, Environment, Seal, SealError
from harness.evidence.trial_files import series_of
from harness.execution.executor import TrialRequest, TrialResult
from harness.execution.logs import Log, Steps
from harness.execution.trial_log import TrialLog
from harness.judging.judge import Judgment, judge, requested
from harness.judging.observation import Ending, EndingKind, Residency
from harness.judging.record import LogIdentity, MutantRecord, Record, RecordedCommit
from harness.judging.verdict import MutantOutcome, claim_verdict, not_run
from harness.machine import git, provenance
from harness.machine.host import Host
from harness.machine.telemetry import DriverResidency, Telemetry
from harness.running import events
from harness.running.plan import Plan

__all__ = ["Recorder", "Trials", "silent", "unmeasured"]


@dataclass(frozen=True)
class Trials:
    """The results of the trials of one claim, before the verdict."""

    subject: TrialResult
    judgment: Judgment
    mutants: Mapping[str, TrialResult]
    """The mutants that ran, by id."""
    outcomes: Sequence[MutantOutcome]
    """The outcome of every mutant, in the contract's order."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    sources: Mapping[str, str] = field(default_factory=dict)
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    """Why GPUs were given up, by UUID."""
    predicted: JsonObject = field(default_factory=dict)
    """The probe's prediction for the profile's step."""
    seconds: float = 0.0
    """Seconds of imports and trials, without waits for a device or for other claims."""
    waited_seconds: float = 0.0
    """Seconds that trials waited for devices."""


@final
class Recorder:
    """Seals the claims of one project on one machine."""

    def __init__(self, project: Project, host: Host, seal: Seal, command: str) -> None:
        """Args:
        seal: writes the bundle of a claim.
        command: the command line without the claims.
        """
        self._project, self._host, self._seal, self._command = project, host, seal, command
        self._identified = threading.Thread(target=self._identify, daemon=True)
        self._identified.start()

    def _identify(self) -> None:
        """Identify the code of project and harness, concurrently with the first trial."""
        self._commit = git.commit(self._project.root)
        provenance.harness_identity()
        provenance.harness_commit()
        provenance.software(self._host)

    def finished(self, plan: Plan, trials: Trials) -> events.ClaimFinished:
        """Seal the result of a claim. If its bundle cannot be written to the evidence folder, it is NOT_MEASURED."""
        self._identified.join()
        record = self._record(plan, trials)
        result = ClaimResult(record, plan.contract, trials.subject, trials.mutants, self._environment())
        observed = trials.subject.observation
        close = ratios(plan.contract, observed.measurements, observed.parameters, observed.device)
        if to_write := _unwritten(plan.contract, self._project):
            return events.ClaimFinished(record, None, close, f"not written yet: {to_write}")
        try:
            place = self._seal(result)
            return events.ClaimFinished(record, place, close, "" if place is not None else "this command writes none")
        except OSError as error:
            verdict = Verdict.FAIL if record.verdict is Verdict.FAIL else Verdict.NOT_MEASURED
            elsewhere = error.elsewhere if isinstance(error, SealError) else None
            text = f"{error}; it is in {elsewhere}, from where harness merge copies it" if elsewhere else str(error)
            reason = Reason(ReasonCode.UNSEALED, text=text)
            return events.ClaimFinished(replace(record, verdict=verdict, reason=reason, proven=False), elsewhere)

    def _record(self, plan: Plan, trials: Trials) -> Record:
        contract, request, observation = plan.contract, plan.request, trials.subject.observation
        mask = redactor().mask_json
        decided = claim_verdict(trials.judgment, trials.outcomes, skipped=not request.mutants)
        return Record(
            id=contract.id,
            issue=contract.issue,
            spec=contract.spec,
            title=contract.title,
            claim=contract.claim,
            falsifier=contract.falsifier,
            subject=contract.subject,
            target=contract.target,
            run=f"{trials.began:%Y-%m-%dT%H%M%SZ}-{_slug(plan.device)}-{secrets.token_hex(3)}",
            verdict=decided.verdict,
            reason=decided.reason,
            proven=decided.proven,
            profile=plan.profile.name,
            profile_reason=mask(plan.reason),
            limit_seconds=plan.trial().seconds,
            pace=plan.pace,
            overrides=dict(request.parameters),
            subject_parameters={} if request.subject is None else dict(request.subject.parameters),
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
            started=trials.began.isoformat(timespec="seconds"),
            seconds=round(trials.seconds, 3),
            waited_seconds=round(trials.waited_seconds, 3),
            withdrawn=mask(trials.withdrawn),
            predicted=trials.predicted
            and {**mask(trials.predicted), "measured": observation.residency.allocator_peak_bytes},
            trial_seconds=round(trials.subject.seconds, 3),
            contract_digest=contract.digest,
            sources=mask(trials.sources),
            harness={**provenance.harness_identity(), **provenance.harness_commit()},
            commit=mask(self._commit_of(contract, trials.sources)),
            logs={
                "log": _log_identity(trials.subject.log),
                "stdout": _log_identity(trials.subject.stdout),
                "stderr": _log_identity(trials.subject.stderr),
            },
            series=series_of(trials.subject),
            command=mask(_with_interpreter(request.command or f"{self._command} {contract.id}")),
        )

    def _commit_of(self, contract: Contract, sources: Mapping[str, str]) -> RecordedCommit:
        """Return the commit, and whether the contract and all sources are unchanged in it."""
        revision, reason = self._commit.value, self._commit.reason
        if revision is None:
            return {"revision": None, "dirty": None, "reason": reason}
        whole = sha256(contract.content).hexdigest()  # the contract's digest leaves out its annotations
        digests = {self._project.name_of(contract.path): whole, **sources}
        own = {name: digest for name, digest in digests.items() if is_own(name)}
        differing = git.differing(self._project.root, revision, own)
        dirty = None if differing.value is None else bool(differing.value)
        return {"revision": revision, "dirty": dirty, "reason": differing.reason}

    def _environment(self) -> Environment:
        environment: Environment = redactor().mask_json(
            {
                "host": self._host.to_json(),
                "software": provenance.software(self._host),
                "variables": allowed_environment(),
            }
        )
        return environment


def unmeasured(plan: Plan) -> Trials:
    """Return the results of a claim that cannot run: judged like others, without measurements."""
    why = redactor().mask(plan.obstacle)
    result = silent(plan.trial(), Ending(EndingKind.NOT_MEASURED, Phase.START, why))
    obstacle = Reason(ReasonCode.NOTHING_RAN, text=why)
    outcomes = [not_run(mutant, obstacle) for mutant in plan.contract.mutants]
    return Trials(result, judge(plan.contract, result.observation), {}, outcomes)


def silent(request: TrialRequest, ending: Ending) -> TrialResult:
    """Return the result of a trial without messages."""
    observation = request.observation({}, residency=Residency(reason="no trial ran"), ending=ending)
    telemetry = Telemetry((), {"seconds": "no trial ran"}, DriverResidency(None, None, "no trial ran"))
    empty = Log("", 0, sha256(b"").hexdigest())
    log = TrialLog(time.monotonic(), redactor().mask)
    log.write(f"no trial of {request.subject} ran")
    log.end(ending)
    return TrialResult(observation, Steps(), telemetry, log.close(redactor()), empty, empty, None, 0.0)


def _unwritten(contract: Contract, project: Project) -> str:
    """Return the first TODO marker of `harness new`; empty if there is none."""
    for place, _ in unwritten_texts(contract.document):
        return f"{place} of {contract.id}"
    for _, path, line in unwritten_code(contract, project.search_of(contract.path)):
        return f"{project.name_of(path)}:{line}"
    return ""


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


def _with_interpreter(command: str) -> str:
    """Return a command with the variable that makes Triton run kernels without a GPU, where it is set."""
    value = os.environ.get("TRITON_INTERPRET", "0")
    return command if value in ("", "0") else f"TRITON_INTERPRET={value} {command}"


def _log_identity(log: Log) -> LogIdentity:
    return {"size": log.size, "sha256": log.digest}


def _slug(device: Device) -> str:
    name = device.name.lower().removeprefix("nvidia").strip() if device.is_cuda else "cpu"
    return "".join(letter if letter.isalnum() else "-" for letter in name).strip("-")[:24] or "gpu"
