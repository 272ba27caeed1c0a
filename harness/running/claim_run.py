"""One claim on its way through a run: its subject's trial, then those of its mutants. Each is judged when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from harness.base.exceptions import described
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome, Phase, SearchEnd
from harness.contract import Mutant
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.endable import Unjudged, judged
from harness.execution.executor import Executor, Executors, TrialRequest, TrialResult
from harness.execution.lease import CPU, Holder, LeaseUnavailable, WaitInterrupted, lease, named
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Ending, EndingKind
from harness.judging.verdict import MutantOutcome, fate_of, interrupted, not_run
from harness.machine.host import Host
from harness.running import events, foresight
from harness.running.crew import Turn, TurnInterrupted
from harness.running.demand import Demand
from harness.running.durations import Durations
from harness.running.interruption import Interruption
from harness.running.plan import Plan, device_of
from harness.running.request import RunRequest
from harness.running.scheduler import Task
from harness.running.trial_results import Trials, silent, unmeasured
from harness.running.work_clock import WorkClock

__all__ = ["ClaimRun", "Shared"]


@dataclass(frozen=True)
class Shared:
    """The parts of a run that all of its claims share."""

    request: RunRequest
    host: Host
    root: Path
    """Of the project."""
    executors: Executors
    demand: Demand
    durations: Durations
    emit: events.Handler
    interruption: Interruption
    seal: Callable[[ClaimRun], None]
    """Seals a claim whose trials have ended."""


@final
class ClaimRun:
    """Runs the trials of a claim, in the threads of the crew, and collects their results.

    Attributes:
        plan: says which GPU the trials get, once the first one has begun.
        awaited: the holders of the device while a trial waits for it; else empty.
        withdrawn: why GPUs failed the claim, by UUID. If it can run on another one, it begins again there.
    """

    def __init__(self, index: int, plan: Plan, shared: Shared) -> None:
        """Args:
        index: the claim's place in the request.
        """
        self.plan, self.awaited, self.index = plan, "", index
        self.began = datetime.now(UTC)
        self._shared, self._emit = shared, shared.emit
        self._turn = threading.Lock()
        self._executor: Executor | None = None
        self._sources: Mapping[str, str] = {}
        self._subject: tuple[TrialResult, Judgment] | None = None
        self._mutants: dict[str, tuple[TrialResult, MutantOutcome]] = {}
        self._pending = [mutant for mutant, obstacle in plan.mutants if obstacle is None]
        self._needless = self._begins_again = False
        self.withdrawn: dict[str, str] = {}
        self._predicted: JsonObject | None = None
        """None until a device is assigned."""
        self._clock = WorkClock()

    @property
    def is_measured(self) -> bool:
        """Whether the subject's trial has ended."""
        return self._subject is not None

    @property
    def seconds(self) -> float:
        """Seconds that the claim's imports and trials took. Waits for a device or for other claims do not count."""
        return self._clock.busy

    @property
    def waited_seconds(self) -> float:
        """Seconds that they waited for devices that other processes held."""
        return self._clock.waited

    def task(self) -> Task:
        """The subject's trial, for the schedule. Claims that measure time come first, then those that take longest."""
        plan, expected = self.plan, self._shared.durations.expected
        whole = sum(expected(plan, name) for name in (events.SUBJECT, *(mutant.id for mutant in self._pending)))
        self._rank = (not plan.profile.exclusive, -whole, self.index)
        return Task(f"{self.index} {events.SUBJECT}", self._shared.demand.ways(plan), self._rank, whole)

    def work(self, turn: Turn, name: str) -> Sequence[Task]:
        """Run the subject's or a mutant's trial. Returns the tasks that come after it."""
        demand = self._shared.demand
        if (failure := demand.broken(turn.amounts) or demand.crowded(turn.amounts)) and self._moves(turn, failure):
            return self._next(name, turn)
        if self._predicted is None:
            self.began = datetime.now(UTC)
            gpu, others = demand.gpu(turn.amounts), demand.others(turn.amounts)
            self.plan = replace(self.plan, gpu=gpu, others=others, device=device_of(gpu, self._shared.host))
            with turn.idle():
                interruption = self._shared.interruption
                self._predicted = foresight.foreseen(self.plan, self._shared.root, lambda: interruption.requested)
            self.plan = replace(self.plan, obstacle=foresight.obstacle(self._predicted))
            self._emit(events.ClaimPlanned.of(self.plan))
            if self.plan.obstacle:
                return self._next(name, turn)
            if (amounts := demand.foreseen(self.plan, turn.amounts, self._predicted)) != turn.amounts:
                return (replace(turn.task, ways=(amounts,)),)
        try:
            with self._leased(turn, name), self._clock.working():
                self._prepare(turn, name)
                ending = self._trial(name, turn)
            failure = demand.broken(turn.amounts)
            if ending is EndingKind.NOT_MEASURED:
                failure = failure or demand.crowded(turn.amounts)
            if failure:
                self._moves(turn, failure)
        except LeaseUnavailable as error:
            if not error.holders or not self._moves(turn, str(error)):
                with turn.idle():
                    self._unavailable(name, str(error))
        except WaitInterrupted as wait:
            raise TurnInterrupted from wait
        return self._next(name, turn)

    def results(self) -> Trials:
        """The results. Mutants that have not run were kept from it by an interruption."""
        if self.plan.obstacle:
            silent = unmeasured(self.plan, self._shared.request)
            return replace(silent, withdrawn=self.withdrawn, predicted=self._predicted or {})
        assert self._subject is not None
        result, judgment = self._subject
        outcomes: list[MutantOutcome] = []
        for mutant, obstacle in self.plan.mutants:
            if obstacle is not None:
                outcomes.append(not_run(mutant, obstacle))
            elif mutant.id in self._mutants:
                outcomes.append(self._mutants[mutant.id][1])
            elif self._needless:
                outcomes.append(not_run(mutant, Reason(ReasonCode.NEEDLESS)))
            else:
                outcomes.append(interrupted(mutant))
        trials = {
            mutant.id: self._mutants[mutant.id][0] for mutant, _ in self.plan.mutants if mutant.id in self._mutants
        }
        external = self._shared.request.external
        imported = {**self._sources, **(external.sources if external is not None else {})}
        for trial in (result, *trials.values()):
            imported |= trial.sources
        sources = dict(sorted(imported.items()))
        return Trials(result, judgment, trials, outcomes, sources, self.withdrawn, self._predicted or {})

    def durations(self) -> Mapping[str, float]:
        """The seconds of each trial, by name."""
        ran = {} if self._subject is None else {events.SUBJECT: self._subject[0].seconds}
        return ran | {name: result.seconds for name, (result, _) in self._mutants.items()}

    def interrupt(self) -> None:
        """End the trials that run. Their measurements are kept."""
        if self._executor is not None:
            self._executor.interrupt()

    def close(self) -> None:
        """End all processes of the claim, and remove their files."""
        with self._turn:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.__exit__(None, None, None)

    def _moves(self, turn: Turn, failure: str) -> bool:
        """Take the GPU of a trial out of the pool. Returns whether the claim begins again on another one."""
        demand, plan = self._shared.demand, self.plan
        gpu = demand.gpu(turn.amounts)
        if gpu is None:
            return False
        moves = demand.has_another(plan, turn.amounts)
        demand.withdraw(turn.amounts, failure)
        with self._turn:
            is_new = gpu.key not in self.withdrawn
            self.withdrawn.setdefault(gpu.key, failure)
        if is_new:
            after = "the claim begins again on another GPU" if moves else "there is no other GPU for the claim"
            self._emit(events.Remarked(plan.contract.id, f"GPU {gpu.index} is not used any more: {failure}; {after}"))
        self._begins_again = self._begins_again or moves
        return moves

    @contextmanager
    def _leased(self, turn: Turn, name: str) -> Iterator[None]:
        """Hold the device. While another process has it, the run uses the other resources for other trials."""
        plan, device = self.plan, self._shared.demand.device(turn.amounts)
        shares = name != events.SUBJECT and self._mutant(name).shares

        def waiting(holders: tuple[Holder, ...]) -> None:
            turn.is_idle = True
            turn.pause((device,))
            self.awaited = "; ".join(named(holders))
            self._emit(events.ClaimWaiting(plan.contract.id, named(holders), name, plan.device.name))

        # In one order for all claims, so that no two wait for each other.
        devices = sorted((plan.gpu, *plan.others), key=lambda gpu: gpu.key) if plan.gpu else [CPU]
        with ExitStack() as held:
            for each in devices:
                taken = lease(
                    each,
                    mode="exclusive" if plan.profile.exclusive and not shares else "shared",
                    holder=plan.contract.id,
                    wait_seconds=plan.profile.lease_seconds,
                    memory=self._shared.demand.memory(turn.amounts),
                    on_wait=waiting,
                    interrupted=lambda: self._shared.interruption.requested,
                )
                self._clock.waited += held.enter_context(taken).waited_seconds
            with turn.idle():
                turn.resume()
            self.awaited = ""
            yield

    def _prepare(self, turn: Turn, name: str) -> None:
        """Import the claim's code, before its first trial."""
        if self._executor is not None:
            return
        try:
            with turn.idle():
                self._emit(events.TrialPhase(self.plan.contract.id, name, "importing"))
                self._executor = self._shared.executors(self.plan.contract).__enter__()
                self._sources = self._executor.imports().sources
        except OSError as error:
            raise LeaseUnavailable(f"trials cannot be started here: {error}") from error
        except TurnInterrupted:
            self.close()
            raise

    def _trial(self, name: str, turn: Turn) -> EndingKind:
        plan, external = self.plan, self._shared.request.external
        if name == events.SUBJECT:
            parameters = {} if external is None else external.parameters
            seconds = (external and external.seconds) or plan.profile.seconds
            result, judgment = self._measured(name, plan.contract.subject, parameters, seconds, turn)
            self._subject, outcome = (result, judgment), None
        else:
            mutant = self._mutant(name)
            result, judgment = self._measured(name, mutant.subject, mutant.parameters, plan.profile.seconds, turn)
            outcome = fate_of(mutant, judgment)
            self._mutants[name] = result, outcome
        self._told(name, result, judgment, outcome)
        return result.observation.ending.kind

    def _told(self, name: str, result: TrialResult, judgment: Judgment, outcome: MutantOutcome | None) -> None:
        traceback = result.observation.ending.traceback or ""
        self._emit(events.TrialFinished(self.plan.contract.id, name, judgment, outcome, result.seconds, traceback))

    def _unavailable(self, name: str, text: str) -> None:
        """The machine could not run a trial. For the subject's, that is why the claim does not run."""
        if name == events.SUBJECT:
            self.plan = replace(self.plan, obstacle=text)
            return
        mutant = self._mutant(name)
        request = self._request(mutant.subject, mutant.parameters, self.plan.profile.seconds, 1)
        result = silent(request, Ending(EndingKind.NOT_MEASURED, Phase.START, text))
        judgment = judge(self.plan.contract, result.observation)
        self._mutants[name] = result, fate_of(mutant, judgment)
        self._told(name, result, judgment, self._mutants[name][1])

    def _next(self, name: str, turn: Turn) -> Sequence[Task]:
        """The mutants' tasks after the subject's trial; none if no mutant is needed. After the last trial, seal."""
        shared = self._shared
        with self._turn:
            if name != events.SUBJECT:
                self._pending.remove(self._mutant(name))
            following: list[Mutant] = []
            if self._begins_again and not shared.interruption.requested:
                return self._again(name)
            if name == events.SUBJECT and not shared.interruption.requested:
                passes = self._subject is not None and self._subject[1].outcome is Outcome.PASS
                self._needless = not (self.plan.obstacle or shared.request.all_mutants or passes)
                if self.plan.obstacle or self._needless:
                    self._pending.clear()
                following = list(self._pending)
            is_done = not self._pending
        if is_done:
            shared.seal(self)
        # All trials of a claim run on one device, for the verdict speaks of that.
        return [
            Task(
                f"{self.index} {one.id}",
                (shared.demand.of_mutant(one, turn.amounts),),
                (*self._rank, -(seconds := shared.durations.expected(self.plan, one.id))),
                seconds,
            )
            for one in following
        ]

    def _again(self, name: str) -> Sequence[Task]:
        """Begin again on another device, when no trial is left on the failed one."""
        if name != events.SUBJECT and self._pending:
            return ()
        self._begins_again, self._subject, self._predicted = False, None, None
        self._mutants.clear()
        self._pending = [mutant for mutant, obstacle in self.plan.mutants if obstacle is None]
        return (self.task(),)

    def _mutant(self, name: str) -> Mutant:
        return next(mutant for mutant in self.plan.contract.mutants if mutant.id == name)

    def _request(self, subject: str, changed: JsonObject, seconds: float, threads: int) -> TrialRequest:
        trial = self.plan.trial(self._shared.request.seed, threads)
        return replace(trial, subject=subject, parameters={**trial.parameters, **changed}, seconds=seconds)

    def _measured(
        self, name: str, subject: str, changed: JsonObject, seconds: float, turn: Turn
    ) -> tuple[TrialResult, Judgment]:
        contract, demand = self.plan.contract, self._shared.demand
        request = replace(
            self._request(subject, changed, seconds, demand.threads(turn.amounts)),
            on_doing=lambda text: self._emit(events.TrialPhase(contract.id, name, text)),
            search_end=SearchEnd.SIMPLEST if name == events.SUBJECT else SearchEnd.TRIED,
        )
        steps = request.parameters.get("steps")
        self._emit(events.TrialStarted(contract.id, name, steps if isinstance(steps, int) else None))

        def on_step(step: int, values: JsonObject, memory_bytes: int | None) -> None:
            self._emit(events.TrialStep(contract.id, name, step, values, memory_bytes))

        assert self._executor is not None
        try:
            result = self._executor.run(request, on_step)
        except Exception as error:  # a defect of the harness in one trial must not lose the others or the evidence
            result = silent(request, Ending(EndingKind.LOST, Phase.START, described(error)))
        if broken := demand.broken(turn.amounts):
            ending = Ending(EndingKind.INTERRUPTED, result.observation.ending.phase, f"the GPU failed: {broken}")
            result = replace(result, observation=replace(result.observation, ending=ending))
        interruption = self._shared.interruption
        try:
            return result, judged(contract, result.observation, lambda: interruption.requested)
        except Unjudged as error:
            kind = EndingKind.INTERRUPTED if interruption.requested else EndingKind.LOST
            ending = Ending(kind, result.observation.ending.phase, f"the judging of this trial {error}")
            unjudged = replace(result, observation=replace(result.observation, ending=ending))
            return unjudged, judge(contract, unjudged.observation)
