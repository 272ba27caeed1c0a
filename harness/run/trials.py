"""The trials of one claim, subject and mutants, side by side where its lease allows it; each judged as it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from harness.base.vocabulary import Phase
from harness.contract import Contract, Mutant
from harness.execution.executor import Executor, TrialRequest, TrialResult
from harness.execution.logs import Log
from harness.execution.steps import Steps
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Ending, EndingKind, Observation, Residency
from harness.judging.verdict import MutantOutcome, fate_of, interrupted, not_run
from harness.machine.telemetry import COLUMNS, DriverResidency, Telemetry
from harness.run import events
from harness.run.interruption import Interruption
from harness.run.plan import Options, Plan

__all__ = ["TrialRun", "Trials", "unmeasured"]

_LOOK_SECONDS = 0.1
"""How often somebody looks whether the user wants out."""


@dataclass(frozen=True)
class Trials:
    """The trials of one claim, before they are settled."""

    subject: TrialResult
    judgment: Judgment
    mutants: Mapping[str, TrialResult]
    """By id; those that ran."""
    outcomes: Sequence[MutantOutcome]
    """Of every mutant, in the contract's order."""
    sources: Mapping[str, str] = field(default_factory=dict)


class TrialRun:
    """Runs them, under the claim's lease."""

    def __init__(
        self, emit: events.Handler, contract: Contract, course: Plan, options: Options, executor: Executor, cpus: int
    ) -> None:
        """Args:
        cpus: how many the trials share.
        """
        self._emit, self._contract, self._course, self._options = emit, contract, course, options
        self._executor, self._threads = executor, max(1, cpus // course.parallel)

    def run(
        self, runnable: Sequence[tuple[Mutant, str]], sources: Mapping[str, str], interruption: Interruption
    ) -> Trials:
        """Run the subject, and every mutant that nothing (the text beside it) keeps from running.

        An interruption ends the trials that run, keeps what they measured, and starts no other.
        """
        with ThreadPoolExecutor(self._course.parallel, thread_name_prefix="trial") as pool:
            subject = pool.submit(self._subject)
            mutants = {mutant.id: pool.submit(self._mutant, mutant) for mutant, obstacle in runnable if not obstacle}
            try:
                self._finish([subject, *mutants.values()], interruption)
            except KeyboardInterrupt:  # of one who cannot wait for trials to end in good order
                self._executor.interrupt()
                raise
        result, judgment = subject.result()
        trials: dict[str, TrialResult] = {}
        outcomes: list[MutantOutcome] = []
        for mutant, obstacle in runnable:
            if mutant.id not in mutants:
                outcomes.append(not_run(mutant, obstacle))
            elif mutants[mutant.id].cancelled():
                outcomes.append(interrupted(mutant))
            else:
                trials[mutant.id], outcome = mutants[mutant.id].result()
                outcomes.append(outcome)
        external = self._options.external
        imported = {**sources, **(external.sources if external is not None else {})}
        for trial in (result, *trials.values()):
            imported |= trial.sources
        return Trials(result, judgment, trials, outcomes, dict(sorted(imported.items())))

    def _finish(self, futures: Sequence[Future[Any]], interruption: Interruption) -> None:
        while not interruption.requested and wait(futures, timeout=_LOOK_SECONDS).not_done:
            pass
        if interruption.requested:
            for future in futures[1:]:  # the subject's trial is in any case worth a word
                future.cancel()
            self._executor.interrupt()
            wait(futures)

    def _subject(self) -> tuple[TrialResult, Judgment]:
        external = self._options.external
        result, judgment = self._measure(
            events.SUBJECT,
            self._contract.subject,
            {} if external is None else external.parameters,
            (external and external.seconds) or self._course.profile.seconds,
        )
        self._finished(events.SUBJECT, result, judgment, None)
        return result, judgment

    def _mutant(self, mutant: Mutant) -> tuple[TrialResult, MutantOutcome]:
        seconds = self._course.profile.seconds
        result, judgment = self._measure(mutant.id, mutant.subject, mutant.parameters, seconds)
        outcome = fate_of(mutant, judgment)
        self._finished(mutant.id, result, judgment, outcome)
        return result, outcome

    def _finished(self, name: str, result: TrialResult, judgment: Judgment, outcome: MutantOutcome | None) -> None:
        traceback = result.observation.ending.traceback or ""
        self._emit(events.TrialFinished(self._contract.id, name, judgment, outcome, result.seconds, traceback))

    def _measure(
        self, name: str, subject: str, changed: Mapping[str, Any], seconds: float
    ) -> tuple[TrialResult, Judgment]:
        contract, course = self._contract, self._course
        request = TrialRequest(
            contract=contract,
            subject=subject,
            profile=course.profile.name,
            parameters={**course.parameters, **changed},
            device=course.device,
            seed=self._options.seed,
            seconds=seconds,
            threads=self._threads,
        )
        steps = request.parameters.get("steps")
        self._emit(events.TrialStarted(contract.id, name, steps if isinstance(steps, int) else None))

        def on_step(step: int, values: Mapping[str, Any], memory_bytes: int | None) -> None:
            self._emit(events.TrialStep(contract.id, name, step, values, memory_bytes))

        try:
            result = self._executor.run(request, on_step)
        except Exception as error:  # a defect of ours in one trial takes neither the others nor the evidence with it
            result = _silent(request, Ending(EndingKind.LOST, Phase.START, f"{type(error).__name__}: {error}"))
        return result, judge(contract, result.observation)


def unmeasured(contract: Contract, course: Plan, options: Options, reason: str) -> Trials:
    """A claim that could not even start is judged and sealed like any other: nothing of it was measured."""
    external = options.external
    request = TrialRequest(
        contract=contract,
        subject=contract.subject,
        profile=course.profile.name,
        parameters={**course.parameters, **(external.parameters if external is not None else {})},
        device=course.device,
        seed=options.seed,
        seconds=course.profile.seconds,
        threads=1,
    )
    result = _silent(request, Ending(EndingKind.NOT_MEASURED, Phase.START, reason))
    return Trials(
        result, judge(contract, result.observation), {}, [not_run(mutant, reason) for mutant in contract.mutants]
    )


def _silent(request: TrialRequest, ending: Ending) -> TrialResult:
    """What comes of a trial of which nothing was heard."""
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
