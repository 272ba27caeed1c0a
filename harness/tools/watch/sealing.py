"""Judges the claims on a watched job, and seals each new refutation as evidence."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, final

from harness.base.beneath import Beneath
from harness.base.redaction import redactor
from harness.base.vocabulary import Outcome, Phase
from harness.contract import Mutant
from harness.contract.project import Project
from harness.evidence.seal import Sealer
from harness.execution.executor import TrialRequest, TrialResult
from harness.execution.logs import Log, Steps
from harness.execution.trial_log import TrialLog
from harness.judging.judge import judge
from harness.judging.observation import Ending, EndingKind, Observation, Residency
from harness.judging.verdict import fate_of, not_run
from harness.machine.host import Host
from harness.machine.telemetry import COLUMNS, DriverResidency, Telemetry
from harness.running.events import ClaimEnded
from harness.running.plan import Plan, make_plan
from harness.running.recording import Recorder, Trials
from harness.tools.watch.checks import measured, state_of, unseen
from harness.tools.watch.claims import Claim
from harness.tools.watch.facts import FACTS, Fact
from harness.tools.watch.given import Given
from harness.tools.watch.job_state import JobState
from harness.tools.watch.planted import planted

__all__ = ["Judge"]


@final
class Judge:
    """Judges the claims on one job, and seals them."""

    def __init__(
        self, project: Project, host: Host, evidence: Path | None, claims: Sequence[Claim], sources: Mapping[str, str]
    ) -> None:
        """Args:
        evidence: the folder for bundles; None for the project's.
        sources: digests of the trainer's files.
        """
        self._host, self._claims, self._sources = host, claims, sources
        self._is_open = True
        """Whether there may be a refutation that is not sealed: also one of an earlier watcher."""
        self._recorder = Recorder(project, host, Sealer(evidence or project.evidence).seal, "harness watch")

    def conclude(self, job: JobState, facts: Path, add: Callable[[Fact], None], say: Callable[[str], None]) -> None:
        """Report new refutations, and seal the clauses that fail; after the end, seal the clauses that hold too.

        Args:
            facts: the file with the job's facts, to which `add` appends. say: called with each line for the user.
        """
        checks = {refutation.check for refutation in job.reported}
        for refutation in [refutation for refutation in job.refutations if refutation not in job.reported]:
            self._is_open = True
            add({"fact": "refuted", **asdict(refutation)})
            if refutation.check not in checks:
                say(f"REFUTED  {refutation.check}: {refutation.text}")
            checks.add(refutation.check)
        if not self._is_open and not job.is_over:
            return
        new = self._news(job)
        own = self._claims[0]
        if job.is_over and not new and not any(fact["claim"] == own.contract.id for fact in job.sealed):
            new = [(own, ())]
        needs = {check.name: f" (needs {check.needs.replace('`', '')})" for check in job.checks}
        for claim, clauses in new:
            fact, undecided = self._sealed(claim, clauses, job, facts)
            add(fact)
            why = ", ".join(clauses) or (
                undecided and f"not decided: {', '.join(name + needs.get(name, '') for name in undecided)}"
            )
            verdict = f"{fact['verdict']}  {fact['claim']}" + (f": {why}" if why else "")
            say(f"{verdict}  {fact['problem'] or fact['bundle']}")
        self._is_open = False

    def _news(self, job: JobState) -> list[tuple[Claim, tuple[str, ...]]]:
        """Return the claims with failed clauses that are not yet sealed, with these clauses."""
        found = []
        for claim in self._claims:
            before = {clause for fact in job.sealed if fact["claim"] == claim.contract.id for clause in fact["clauses"]}
            plan = make_plan(claim.contract, self._host, claim.request)
            judgment = judge(plan.contract, _observation(plan.trial(), claim, job))
            failed = tuple(clause.id for clause in judgment.with_outcome(Outcome.FAIL) if clause.id not in before)
            if failed:
                found.append((claim, failed))
        return found

    def _sealed(self, claim: Claim, clauses: Sequence[str], job: JobState, facts: Path) -> tuple[Fact, list[str]]:
        """Seal the current result of a claim. Return the fact, with the problem if any, and the open clauses."""
        plan = make_plan(claim.contract, self._host, claim.request)
        with tempfile.TemporaryDirectory(prefix="harness-watch-") as folder:
            if claim.measurements is None:
                shutil.copyfile(facts, Path(folder) / FACTS)
            began = datetime.now(UTC) - timedelta(seconds=job.at)
            subject = _watched(plan.trial(), claim, job, Beneath(Path(folder)))
            judgment = judge(plan.contract, subject.observation)
            mutants = {mutant.id: _planted(plan, mutant) for mutant, why in plan.mutants if why is None}
            outcomes = [
                fate_of(mutant, judge(plan.contract, mutants[mutant.id].observation))
                if why is None
                else not_run(mutant, why)
                for mutant, why in plan.mutants
            ]
            trials = Trials(subject, judgment, mutants, outcomes, began, self._sources, seconds=job.at)
            done = self._recorder.finished(plan, trials)
        undecided = (clause.id.removesuffix(".maxItems") for clause in judgment.with_outcome(Outcome.NOT_MEASURED))
        fact = {"fact": "sealed", "at": job.at, "claim": claim.contract.id, "clauses": [*clauses],
                "verdict": str(done.record.verdict), "bundle": str(done.bundle or ""),
                "problem": ClaimEnded.of(done).unsealed}  # fmt: skip
        return fact, [*dict.fromkeys(name.removesuffix(".type") for name in undecided)]


def _observation(request: TrialRequest, claim: Claim, job: JobState) -> Observation:
    """Return the observation by which a claim's clauses are judged."""
    own = claim.measurements is None
    return request.observation(
        redactor().mask_json(claim.values(job)),
        resolved=_resolved(job, own),
        residency=Residency(driver_seen=job.seen_on_gpu, reason="a watcher does not ask the job's allocator"),
        ending=_ending(job),
        unseen=unseen(job) if own else {},
    )


def _resolved(job: JobState, own: bool) -> dict[str, Any]:
    """Return the values that ran. For a claim of the project, return only refuting values, because its profile may
    require another device."""
    resolved: dict[str, Any] = {}
    seen = job.seen_on_gpu
    if own and (device := job.description.get("runs_on")):
        resolved["device"] = device
    elif own and seen is not None:
        resolved["device"] = "cuda" if seen else "cpu"
    if any(refutation.check in ("device_other", "gpu_unused") for refutation in job.refutations):
        resolved["device"] = "cuda" if job.given.device == "cpu" else "cpu"
    asked, made = job.given.steps, job.made or 0
    if asked is not None and (job.status == 0 or made > asked):
        resolved["steps"] = made
    return resolved


def _ending(job: JobState) -> Ending:
    if job.status == 0:
        return Ending(EndingKind.COMPLETED)
    if any(refutation.check == "ended_badly" for refutation in job.refutations):
        return Ending(EndingKind.SUBJECT_FAULT, Phase.SUBJECT, f"the job {job.how}", exit_code=job.status)
    how = job.how or f"the job still runs; it was watched to step {job.step}"
    return Ending(EndingKind.NOT_MEASURED, Phase.SUBJECT, how)


def _watched(request: TrialRequest, claim: Claim, job: JobState, artifacts: Beneath) -> TrialResult:
    """Return the result of the checks on the facts of the job."""
    lines = [f"watched {job.description.get('name', 'a job')}: {job.description.get('told', '')}"]
    lines += [f"{refutation.check}: {refutation.text}" for refutation in job.refutations]
    for fact in (*job.sealed, *job.acted, *job.broken):
        lines.append(", ".join(f"{key} {value}" for key, value in fact.items()))
    rows = tuple(
        tuple(fact["at"] if column == "seconds" else fact.get(column) for column in COLUMNS) for fact in job.usage
    )
    reasons = {} if rows else {"seconds": "the job's processes are not on this machine"}
    telemetry = Telemetry(rows, reasons, DriverResidency(None, None, "the facts have what the driver said"))
    return _result(_observation(request, claim, job), lines, telemetry, job.at, job.series.close(), artifacts)


def _planted(plan: Plan, mutant: Mutant) -> TrialResult:
    """Return the result of the checks on the facts of a mutant."""
    request = plan.mutant_trial(mutant)
    began, replayed = time.monotonic(), "facts are replayed"
    job = state_of(planted(request.parameters["defect"]), Given.of_texts(request.parameters["given"]))
    observation = request.observation(
        measured(job), resolved={"device": request.device.type}, residency=Residency(reason=replayed)
    )
    lines = [f"replayed the facts of the healthy job with the defect {mutant.id}"]
    telemetry = Telemetry((), {"seconds": replayed}, DriverResidency(None, None, replayed))
    return _result(observation, lines, telemetry, time.monotonic() - began, Steps(), None)


def _result(
    observation: Observation,
    lines: Sequence[str],
    telemetry: Telemetry,
    seconds: float,
    steps: Steps,
    artifacts: Beneath | None,
) -> TrialResult:
    """Return the result of a trial without a process: its log has these lines, and there is no output."""
    log = TrialLog(time.monotonic() - seconds, redactor().mask)
    for line in lines:
        log.write(line)
    log.end(observation.ending)
    return TrialResult(observation, steps, telemetry, log.close(redactor()), _EMPTY, _EMPTY, artifacts, seconds)


_EMPTY = Log("", 0, sha256(b"").hexdigest())
