"""The trials of one claim, subject and mutants, in parallel if its lease allows it. Each is judged when it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Phase
from harness.contract import Mutant
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.endable import Unjudged, judged
from harness.execution.executor import Executor, TrialRequest, TrialResult
from harness.execution.logs import Log
from harness.execution.steps import Steps
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Ending, EndingKind, Observation, Residency
from harness.judging.verdict import MutantOutcome, fate_of, interrupted, not_run
from harness.machine.telemetry import COLUMNS, DriverResidency, Telemetry
from harness.run import events
from harness.run.interruption import Interruption
from harness.run.plan import Plan
from harness.run.request import RunRequest

__all__ = ["TrialRun", "Trials", "unmeasured"]

_LOOK_SECONDS = 0.1
"""Seconds between two checks for an interruption."""


@dataclass(frozen=True)
class Trials:
    """The results of the trials of one claim, before the verdict."""

    subject: TrialResult
    judgment: Judgment
    mutants: Mapping[str, TrialResult]
    """The mutants that ran, by id."""
    outcomes: Sequence[MutantOutcome]
    """The outcome of every mutant, in the contract's order."""
    sources: Mapping[str, str] = field(default_factory=dict)


class TrialRun:
    """Runs the trials of a claim under its lease."""

    def __init__(self, emit: events.Handler, plan: Plan, request: RunRequest, executor: Executor, cpus: int) -> None:
        """Args:
        cpus: how many the trials share.
        """
        self._emit, self._plan, self._request = emit, plan, request
        self._executor, self._threads = executor, max(1, cpus // plan.parallel)

    def run(self, sources: Mapping[str, str], interruption: Interruption) -> Trials:
        """Run the subject, and every mutant that can run.

        An interruption ends the running trials and their judging, keeps their measurements, and starts no others.
        """
        with ThreadPoolExecutor(self._plan.parallel, thread_name_prefix="trial") as pool:
            subject = pool.submit(self._subject, interruption)
            mutants = {
                mutant.id: pool.submit(self._mutant, mutant, interruption)
                for mutant, obstacle in self._plan.mutants
                if not obstacle
            }
            try:
                self._finish([subject, *mutants.values()], interruption)
            except KeyboardInterrupt:  # a user who does not wait for the orderly end of the trials
                self._executor.interrupt()
                raise
        result, judgment = subject.result()
        trials: dict[str, TrialResult] = {}
        outcomes: list[MutantOutcome] = []
        for mutant, obstacle in self._plan.mutants:
            if obstacle is not None:
                outcomes.append(not_run(mutant, obstacle))
            elif mutants[mutant.id].cancelled():
                outcomes.append(interrupted(mutant))
            else:
                trials[mutant.id], outcome = mutants[mutant.id].result()
                outcomes.append(outcome)
        external = self._request.external
        imported = {**sources, **(external.sources if external is not None else {})}
        for trial in (result, *trials.values()):
            imported |= trial.sources
        return Trials(result, judgment, trials, outcomes, dict(sorted(imported.items())))

    def _finish(self, futures: Sequence[Future[Any]], interruption: Interruption) -> None:
        while not interruption.requested and wait(futures, timeout=_LOOK_SECONDS).not_done:
            pass
        if interruption.requested:
            for future in futures[1:]:  # the subject's trial is always reported
                future.cancel()
            self._executor.interrupt()
            wait(futures)

    def _subject(self, interruption: Interruption) -> tuple[TrialResult, Judgment]:
        external = self._request.external
        result, judgment = self._measure(
            events.SUBJECT,
            self._plan.contract.subject,
            {} if external is None else external.parameters,
            (external and external.seconds) or self._plan.profile.seconds,
            interruption,
        )
        self._finished(events.SUBJECT, result, judgment, None)
        return result, judgment

    def _mutant(self, mutant: Mutant, interruption: Interruption) -> tuple[TrialResult, MutantOutcome]:
        seconds = self._plan.profile.seconds
        result, judgment = self._measure(mutant.id, mutant.subject, mutant.parameters, seconds, interruption)
        outcome = fate_of(mutant, judgment)
        self._finished(mutant.id, result, judgment, outcome)
        return result, outcome

    def _finished(self, name: str, result: TrialResult, judgment: Judgment, outcome: MutantOutcome | None) -> None:
        traceback = result.observation.ending.traceback or ""
        self._emit(events.TrialFinished(self._plan.contract.id, name, judgment, outcome, result.seconds, traceback))

    def _measure(
        self, name: str, subject: str, changed: JsonObject, seconds: float, interruption: Interruption
    ) -> tuple[TrialResult, Judgment]:
        contract, plan = self._plan.contract, self._plan
        request = TrialRequest(
            contract=contract,
            subject=subject,
            profile=plan.profile.name,
            parameters={**plan.parameters, **changed},
            device=plan.device,
            seed=self._request.seed,
            seconds=seconds,
            threads=self._threads,
        )
        steps = request.parameters.get("steps")
        self._emit(events.TrialStarted(contract.id, name, steps if isinstance(steps, int) else None))

        def on_step(step: int, values: JsonObject, memory_bytes: int | None) -> None:
            self._emit(events.TrialStep(contract.id, name, step, values, memory_bytes))

        try:
            result = self._executor.run(request, on_step)
        except Exception as error:  # a defect of the harness in one trial must not lose the others or the evidence
            result = _silent(request, Ending(EndingKind.LOST, Phase.START, f"{type(error).__name__}: {error}"))
        try:
            return result, judged(contract, result.observation, lambda: interruption.requested)
        except Unjudged as error:
            kind = EndingKind.INTERRUPTED if interruption.requested else EndingKind.LOST
            ending = Ending(kind, result.observation.ending.phase, f"the judging of this trial {error}")
            unjudged = replace(result, observation=replace(result.observation, ending=ending))
            return unjudged, judge(contract, unjudged.observation)


def unmeasured(plan: Plan, request: RunRequest) -> Trials:
    """The results of a claim with an obstacle: judged like any others, without measurements."""
    contract, external = plan.contract, request.external
    trial = TrialRequest(
        contract=contract,
        subject=contract.subject,
        profile=plan.profile.name,
        parameters={**plan.parameters, **(external.parameters if external is not None else {})},
        device=plan.device,
        seed=request.seed,
        seconds=plan.profile.seconds,
        threads=1,
    )
    result = _silent(trial, Ending(EndingKind.NOT_MEASURED, Phase.START, plan.obstacle))
    obstacle = Reason(ReasonCode.NOTHING_RAN, text=plan.obstacle)
    outcomes = [not_run(mutant, obstacle) for mutant in contract.mutants]
    return Trials(result, judge(contract, result.observation), {}, outcomes)


def _silent(request: TrialRequest, ending: Ending) -> TrialResult:
    """The result of a trial without any message."""
    observation = Observation(
        subject=request.subject,
        profile=request.profile,
        parameters=request.parameters,
        device=request.device,
        measurements={},
        residency=Residency(reason="no trial ran"),
        ending=ending,
        seed=request.seed,
    )
    telemetry = Telemetry(COLUMNS, (), {"seconds": "no trial ran"}, DriverResidency(None, None, "no trial ran"))
    empty = Log("", 0, sha256(b"").hexdigest())
    return TrialResult(observation, Steps(), telemetry, empty, empty, None, 0.0)
