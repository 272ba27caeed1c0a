"""The engine: runs claims and emits events. It does not depend on specs and reports.

For each claim: plan, lease the device, run the trials of the subject and of the mutants, judge each, derive the
verdict, seal the bundle. The trials of all claims share the machine (`harness.running.scheduler`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import final

from harness.base.vocabulary import Verdict
from harness.contract import Contract
from harness.contract.project import Project
from harness.contract.reasons import Reason, ReasonCode
from harness.evidence.seal import Seal
from harness.execution.executor import Executors
from harness.judging.record import Record
from harness.machine.host import Host
from harness.running import events
from harness.running.claim_run import ClaimRun, Shared
from harness.running.durations import Durations
from harness.running.interruption import Interruption
from harness.running.plan import make_plan
from harness.running.pool import Pool, Turn
from harness.running.recording import Recorder, unmeasured
from harness.running.request import RunRequest
from harness.running.resource_requests import ResourceRequests
from harness.running.scheduler import Schedule, Task

__all__ = ["Engine"]


@final
class Engine:
    """Runs claims. A trial starts as soon as its resources are free."""

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
        executors: creates the executors of a run.
        seal: writes the bundle of a claim.
        emit: called with every event, from several threads.
        command: the command line without the claims, for the record.
        """
        self._host, self._executors, self._emit = host, executors, emit
        self._root, self._durations = project.root, Durations(project.root)
        self._recorder = Recorder(project, host, seal, command)

    def run(self, request: RunRequest) -> events.RunFinished:
        """Run claims. After an interruption, claims with a measured subject are sealed with the results so far."""
        started = time.monotonic()
        with Interruption() as interruption, closing(self._executors()) as executors:
            self._emit(events.RunStarted(tuple(contract.id for contract in request.contracts)))
            run = _Run(self, request, executors, interruption)
            try:
                with suppress(KeyboardInterrupt):  # of a user who does not wait for the orderly end of the trials
                    run.run()
            finally:
                run.close()
            records = tuple(record for _, record in sorted(run.records.items()))
            took = time.monotonic() - started
            finished = events.RunFinished(len(request.contracts), records, took, interruption.requested, run.awaited)
            self._emit(finished)
        return finished

    def unmeasured(
        self, contract: Contract, request: RunRequest, reason: str
    ) -> tuple[events.ClaimPlanned, events.ClaimFinished]:
        """Seal a claim that could not run, for a reason outside of this machine. Emits no event."""
        plan = make_plan(contract, self._host, request)
        obstacle = Reason(ReasonCode.NOTHING_RAN, text=reason)
        plan = replace(plan, obstacle=reason, mutants=tuple((mutant, obstacle) for mutant in plan.contract.mutants))
        return events.ClaimPlanned.of(plan), self._recorder.finished(plan, unmeasured(plan))


@final
class _Run:
    """One run of claims.

    Attributes:
        records: the records of sealed claims, by index in the request.
    """

    def __init__(self, engine: Engine, request: RunRequest, executors: Executors, interruption: Interruption) -> None:
        plans = [make_plan(contract, engine._host, request) for contract in request.contracts]
        self.records: dict[int, Record] = {}
        self._request, self._recorder, self._emit = request, engine._recorder, engine._emit
        self._interruption, self._durations = interruption, engine._durations
        demand = ResourceRequests(engine._host, [plan for plan in plans if not plan.obstacle], request.jobs)
        shared = Shared(
            engine._host,
            engine._root,
            executors,
            demand,
            self._durations,
            self._emit,
            interruption,
            self._seal,
        )
        self._claims = [ClaimRun(index, plan, shared) for index, plan in enumerate(plans)]
        self._lock = threading.Lock()
        self._schedule = Schedule(demand.capacity)
        self._pool = Pool(self._schedule, self._work, interruption)

    @property
    def awaited(self) -> str:
        """The holders of a device that a trial was waiting for at the end."""
        return next((claim.awaited for claim in self._claims if claim.awaited), "")

    def run(self) -> None:
        """Run the trials of all claims."""
        for claim in self._claims:
            if not claim.plan.obstacle:
                self._schedule.add(claim.task())
            elif not self._interruption.requested:
                self._emit(events.ClaimPlanned.of(claim.plan))
                self._seal(claim)
        defect = None
        try:
            self._pool.run(self._interrupt)
        except Exception as error:  # of the harness in one claim: the others are sealed
            defect = error
        with ExitStack() as left:
            for claim in reversed(self._claims):
                if claim.is_measured and claim.index not in self.records:
                    left.callback(self._seal, claim)
        if defect is not None:
            raise defect

    def close(self) -> None:
        """End all processes."""
        self._interrupt()
        for claim in self._claims:
            claim.close()
        self._durations.save()

    def _interrupt(self) -> None:
        for claim in self._claims:
            claim.interrupt()

    def _work(self, turn: Turn) -> Sequence[Task]:
        index, _, trial = turn.task.name.partition(" ")
        return self._claims[int(index)].work(turn, trial)

    def _seal(self, claim: ClaimRun) -> None:
        """Seal a claim whose trials have ended, in the thread of the last one."""
        finished = self._recorder.finished(claim.plan, claim.results())
        claim.close()  # sealing needs the files of the trials
        with self._lock:
            self.records[claim.index] = finished.record
            self._durations.add(claim.plan, claim.durations())
        self._emit(finished)
        if self._request.fail_fast and finished.record.verdict in (Verdict.FAIL, Verdict.VOID):
            self._pool.discard(
                [f"{claim.index} {events.SUBJECT}" for claim in self._claims]
            )  # begun claims are finished
