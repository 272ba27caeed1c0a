"""Runs one claim: the subject's trial, then those of its mutants. Each is judged when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from harness.base.plugins import plugins
from harness.base.shortening import described, first
from harness.base.strictjson import JsonObject
from harness.base.vocabulary import Outcome, Phase
from harness.contract import Mutant
from harness.contract.reasons import Reason, ReasonCode
from harness.execution.executor import Executor, Executors, TrialResult
from harness.execution.lease import Holder, LeaseUnavailable, WaitInterrupted, lease, named
from harness.execution.sources import changed
from harness.judging.judge import Judgment, judge
from harness.judging.observation import Ending, EndingKind
from harness.judging.verdict import MutantOutcome, fate_of, interrupted, not_run
from harness.machine.host import Host
from harness.running import events
from harness.running.durations import Durations
from harness.running.interruption import Interruption
from harness.running.plan import Plan, device_of
from harness.running.pool import Turn, TurnInterrupted
from harness.running.recording import Trials, silent, unmeasured
from harness.running.resource_requests import Failure, ResourceRequests
from harness.running.scheduler import Task

__all__ = ["ClaimRun", "Shared"]


@dataclass(frozen=True)
class Shared:
    """The parts of a run that all claims share."""

    host: Host
    root: Path
    """Of the project."""
    executors: Executors
    demand: ResourceRequests
    durations: Durations
    emit: events.Handler
    interruption: Interruption
    seal: Callable[[ClaimRun], None]
    """Called to seal a claim whose trials have ended."""


@dataclass
class _Attempt:
    """The claim's trials on one device. If a GPU fails, another attempt begins."""

    pending: list[Mutant]
    """The mutants whose trials have not ended."""
    predicted: JsonObject | None = None
    """The memory of a step; None until a device is assigned."""
    subject: tuple[TrialResult, Judgment] | None = None
    mutants: dict[str, tuple[TrialResult, MutantOutcome]] = field(default_factory=dict)
    needs_mutants: bool = True
    is_given_up: bool = False


@final
class ClaimRun:
    """Runs the trials of a claim, in the threads of the pool, and collects their results.

    Each trial takes the steps of `work`.

    Attributes:
        plan: the plan. Once the first trial has started, it names the GPU of the trials.
        awaited: the holders of the device that a trial waits for; else empty.
    """

    def __init__(self, index: int, plan: Plan, shared: Shared) -> None:
        """Args:
        index: the claim's index in the request.
        """
        self.plan, self.awaited, self.index = plan, "", index
        self._shared, self._emit = shared, shared.emit
        self._attempt = self._first_attempt()
        self._withdrawn: dict[str, str] = {}
        """Why GPUs were given up, by UUID."""
        self._executor: Executor | None = None
        self._sources: Mapping[str, str] = {}
        self._began, self._lock = datetime.now(UTC), threading.Lock()
        self._worked: list[tuple[float, float]] = []
        """Start and end of each trial's work, as monotonic times."""
        self._waited = 0.0
        """Seconds of waits for devices."""

    @property
    def is_measured(self) -> bool:
        """Whether the subject's trial has ended."""
        return self._attempt.subject is not None

    def task(self) -> Task:
        """Return the task of the subject's trial. Claims that measure time come first, then the longest ones."""
        plan, expected = self.plan, self._shared.durations.expected
        names = (events.SUBJECT, *(mutant.id for mutant in self._attempt.pending))
        whole = sum(expected(plan, name) for name in names)
        self._rank = (not plan.profile.exclusive, -whole, self.index)
        return Task(f"{self.index} {events.SUBJECT}", self._shared.demand.ways(plan), self._rank, whole)

    def work(self, turn: Turn, name: str) -> Sequence[Task]:
        """Run the subject's or a mutant's trial. Returns the tasks that follow."""
        demand = self._shared.demand
        # 1. Give up a GPU that is broken or crowded.
        if self._moves(demand.broken(turn.amounts) or demand.crowded(turn.amounts)):
            return self._next(name, turn)
        # 2. On a new device, predict the memory of a step. It may not fit, or differ from what the schedule reserved.
        if self._attempt.predicted is None:
            predicted = self._predict(turn)
            self._emit(events.ClaimPlanned.of(self.plan))
            if self.plan.obstacle:
                return self._next(name, turn)
            if (amounts := demand.foreseen(self.plan, turn.amounts, predicted)) != turn.amounts:
                return (replace(turn.task, ways=(amounts,)),)
        try:
            # 3. Lease the devices, import the claim's code, run the trial, judge it.
            with self._leased(turn, name):
                self._prepare(turn, name)
                ending = self._trial(turn, name)
            # 4. If the GPU failed meanwhile, the trial does not count.
            is_unmeasured = ending is EndingKind.NOT_MEASURED
            self._moves(demand.broken(turn.amounts) or (demand.crowded(turn.amounts) if is_unmeasured else None))
        except LeaseUnavailable as error:
            with turn.idle():
                failures = [(gpu, str(error)) for gpu in demand.gpus(turn.amounts)[:1] if error.holders]
                if not any(map(self._moves, failures)):
                    self._unavailable(name, str(error))
        except WaitInterrupted as wait:
            raise TurnInterrupted from wait
        # 5. After the subject come its mutants; after the last trial, the bundle; after a failed GPU, another attempt.
        return self._next(name, turn)

    def results(self) -> Trials:
        """Return the results. Mutants without a result were interrupted before they ran."""
        attempt = self._attempt
        if attempt.subject is None or self.plan.obstacle:
            judgments = unmeasured(self.plan)
        else:
            result, judgment = attempt.subject
            ids = [mutant.id for mutant, _ in self.plan.mutants]
            trials = {name: attempt.mutants[name][0] for name in ids if name in attempt.mutants}
            outcomes = [self._outcome(mutant, obstacle) for mutant, obstacle in self.plan.mutants]
            subject = self.plan.request.subject
            imported = [self._sources, subject.sources if subject is not None else {}]
            imported += [trial.sources for trial in (result, *trials.values())]
            sources = {path: digest for digests in imported for path, digest in digests.items()}
            judgments = Trials(result, judgment, trials, outcomes, sources=dict(sorted(sources.items())))
        return replace(
            judgments,
            began=self._began,
            withdrawn=self._withdrawn,
            predicted=attempt.predicted or {},
            seconds=_covered(self._worked),
            waited_seconds=self._waited,
        )

    def durations(self) -> Mapping[str, float]:
        """Return the seconds of each trial, by name."""
        subject, mutants = self._attempt.subject, self._attempt.mutants
        ran = {} if subject is None else {events.SUBJECT: subject[0].seconds}
        return ran | {name: result.seconds for name, (result, _) in mutants.items()}

    def interrupt(self) -> None:
        """End the running trials. Their measurements are kept."""
        if (executor := self._executor) is not None:
            executor.interrupt()

    def close(self) -> None:
        """End all processes of the claim, and remove their files."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.__exit__(None, None, None)

    def _outcome(self, mutant: Mutant, obstacle: Reason | None) -> MutantOutcome:
        if obstacle is not None:
            return not_run(mutant, obstacle)
        if mutant.id in self._attempt.mutants:
            return self._attempt.mutants[mutant.id][1]
        return interrupted(mutant) if self._attempt.needs_mutants else not_run(mutant, Reason(ReasonCode.NEEDLESS))

    def _first_attempt(self) -> _Attempt:
        return _Attempt([mutant for mutant, obstacle in self.plan.mutants if obstacle is None])

    def _predict(self, turn: Turn) -> JsonObject:
        """Take the turn's GPUs, and predict the memory of a step on them."""
        shared = self._shared
        self._began = datetime.now(UTC)
        gpus = shared.demand.gpus(turn.amounts)
        gpu = gpus[0] if gpus else None
        plan = replace(self.plan, gpu=gpu, others=gpus[1:], device=device_of(gpu, shared.host))
        predicted: JsonObject = {}
        if plan.profile.step is not None and gpu is not None:
            for plugin in plugins("harness.memory").values():
                check = plugin.load()
                with turn.idle():
                    predicted = check.foreseen(plan, shared.root, lambda: shared.interruption.requested)
                plan = replace(plan, obstacle=check.obstacle(predicted))
        self._attempt.predicted, self.plan = predicted, plan
        return predicted

    def _moves(self, failure: Failure | None) -> bool:
        """Remove a failed GPU from the pool. Returns whether the claim begins again on other GPUs."""
        if failure is None:
            return False
        (gpu, reason), demand, claim = failure, self._shared.demand, self.plan.contract.id
        demand.withdraw(gpu, reason)
        moves = demand.has_enough(self.plan)
        with self._lock:
            is_new = gpu.key not in self._withdrawn
            self._withdrawn.setdefault(gpu.key, reason)
            self._attempt.is_given_up |= moves
        if is_new:
            after = "the claim begins again on another GPU" if moves else "there is no other GPU for the claim"
            self._emit(events.Remarked(claim, f"GPU {gpu.index} is not used any more: {reason}; {after}"))
        return moves

    @contextmanager
    def _leased(self, turn: Turn, name: str) -> Iterator[None]:
        """Lease the devices for the block. During a wait, other trials of the run use the other resources."""
        plan, demand = self.plan, self._shared.demand
        mutant = self._mutant(name)
        is_alone = plan.profile.exclusive and not (mutant and mutant.shares)

        def waiting(holders: tuple[Holder, ...]) -> None:
            turn.is_idle = True
            turn.pause(demand.devices(turn.amounts))
            self.awaited = "; ".join(named(holders))
            self._emit(events.ClaimWaiting(plan.contract.id, named(holders), name, plan.device.name))

        with ExitStack() as held:
            for device in plan.devices.values():
                taken = lease(
                    device,
                    mode="exclusive" if is_alone else "shared",
                    holder=plan.contract.id,
                    wait_seconds=plan.profile.lease_seconds,
                    memory=demand.memory(turn.amounts),
                    on_wait=waiting,
                    interrupted=lambda: self._shared.interruption.requested,
                )
                self._waited += held.enter_context(taken)
            with turn.idle():
                turn.resume()
            self.awaited, began = "", time.monotonic()
            try:
                yield
            finally:
                self._worked.append((began, time.monotonic()))

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

    def _trial(self, turn: Turn, name: str) -> EndingKind:
        """Run a trial, and judge it."""
        contract, demand = self.plan.contract, self._shared.demand
        mutant, threads = self._mutant(name), demand.threads(turn.amounts)
        request = self.plan.trial(threads) if mutant is None else self.plan.mutant_trial(mutant, threads)
        steps = request.parameters.get("steps")
        self._emit(events.TrialStarted(contract.id, name, steps if isinstance(steps, int) else None))

        def on_step(step: int, values: JsonObject, memory_bytes: int | None) -> None:
            self._emit(events.TrialStep(contract.id, name, step, values, memory_bytes))

        assert self._executor is not None
        try:
            result = self._executor.run(request, on_step)
        except Exception as error:  # a defect of the harness in one trial must not lose the others or the evidence
            result = silent(request, Ending(EndingKind.LOST, Phase.START, described(error)))
        subject = self.plan.request.subject
        if subject is not None and (names := changed(subject.sources, self._shared.root)):
            result = _ended(result, EndingKind.CHANGED, first(names, 3))
        if broken := demand.broken(turn.amounts):
            result = _ended(result, EndingKind.INTERRUPTED, f"the GPU failed: {broken[1]}")
        self._keep(name, result, judge(contract, result.observation))
        return result.observation.ending.kind

    def _keep(self, name: str, result: TrialResult, judgment: Judgment) -> None:
        """Store the result of a trial, and emit its event."""
        outcome = None
        if (mutant := self._mutant(name)) is None:
            self._attempt.subject = result, judgment
        else:
            outcome = fate_of(mutant, judgment)
            self._attempt.mutants[name] = result, outcome
        traceback = result.observation.ending.traceback or ""
        self._emit(events.TrialFinished(self.plan.contract.id, name, judgment, outcome, result.seconds, traceback))

    def _unavailable(self, name: str, text: str) -> None:
        """Record that the machine could not run a trial. If it is the subject's, the claim does not run."""
        if (mutant := self._mutant(name)) is None:
            self.plan = replace(self.plan, obstacle=text)
        else:
            result = silent(self.plan.mutant_trial(mutant), Ending(EndingKind.NOT_MEASURED, Phase.START, text))
            self._keep(name, result, judge(self.plan.contract, result.observation))

    def _next(self, name: str, turn: Turn) -> Sequence[Task]:
        """Return the mutants' tasks after the subject's trial, if mutants are needed. Seal after the last trial."""
        shared, following = self._shared, list[Mutant]()
        with self._lock:
            attempt, is_subject = self._attempt, name == events.SUBJECT
            attempt.pending = [mutant for mutant in attempt.pending if mutant.id != name]
            if attempt.is_given_up and not shared.interruption.requested:
                if attempt.pending and not is_subject:
                    return ()  # the other trials on the failed device end first
                self._attempt = self._first_attempt()
                return (self.task(),)
            if is_subject and not shared.interruption.requested:
                passes = attempt.subject is not None and attempt.subject[1].outcome is Outcome.PASS
                attempt.needs_mutants = bool(self.plan.obstacle) or self.plan.request.all_mutants or passes
                if self.plan.obstacle or not attempt.needs_mutants:
                    attempt.pending = []
                following = attempt.pending
            is_done = not attempt.pending
        if is_done and (self.is_measured or self.plan.obstacle):
            shared.seal(self)
        # All trials of a claim run on one device, which the record names.
        seconds = {mutant.id: shared.durations.expected(self.plan, mutant.id) for mutant in following}
        ways = {mutant.id: (shared.demand.of_mutant(mutant, turn.amounts),) for mutant in following}
        return [
            Task(f"{self.index} {mutant_id}", ways[mutant_id], (*self._rank, -took), took)
            for mutant_id, took in seconds.items()
        ]

    def _mutant(self, name: str) -> Mutant | None:
        """Return the mutant of a trial; None for the subject's."""
        return next((mutant for mutant in self.plan.contract.mutants if mutant.id == name), None)


def _ended(result: TrialResult, kind: EndingKind, reason: str) -> TrialResult:
    """Return a result with another ending in the same phase."""
    ending = Ending(kind, result.observation.ending.phase, reason)
    return replace(result, observation=replace(result.observation, ending=ending))


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of time spans, in seconds."""
    covered = until = 0.0
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered
