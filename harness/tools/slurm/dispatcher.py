"""Runs claims as jobs of Slurm, all submitted at once, and passes on their events, one claim after the other.

A job is `harness run` on a node. It checks requirements, takes leases, runs the trials, and seals the bundle on the
filesystem that the node shares with this machine.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from harness.base.shortening import described
from harness.base.vocabulary import ExitStatus
from harness.contract import Contract
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.record import Record
from harness.running import events
from harness.running.compose import Unmeasured
from harness.running.interruption import Interruption
from harness.running.request import RunRequest
from harness.tools.slurm.event_lines import NoEventError, decode
from harness.tools.slurm.job import Job
from harness.tools.slurm.judged_bundle import BundleRefused, JudgedBundle

__all__ = ["Dispatcher", "Judged"]

Judged = Callable[[Contract, str], JudgedBundle]
"""Opens the bundle of a claim by the name of its folder, as `judged_bundle` does."""

_MOST_JOBS = 32
"""The most jobs that are submitted and have not ended. Many sites limit them."""
_LOOK_SECONDS = 0.1
_VISIBLE_SECONDS = 10.0
"""How long a bundle may take to be seen from here: NFS caches folders for some seconds."""


@dataclass
class _Dispatch:
    """A claim and its job."""

    contract: Contract
    events: queue.Queue[events.Event | None] = field(default_factory=queue.Queue)
    job: Job | None = None
    status: int = 0
    trouble: str = ""
    """Why no job could be submitted."""
    is_ending: bool = False
    """Whether the job was asked to end."""


@dataclass
class Dispatcher:
    """Runs every claim as a job of its own."""

    submit: Callable[[Contract], Job]
    """Submits the job of a claim; raises OSError if that fails."""
    unmeasured: Unmeasured
    judged: Judged
    emit: events.Handler
    remark: Callable[[str], None]
    """Takes each line of a job that is not an event."""

    def run(self, request: RunRequest) -> events.RunFinished:
        """Run claims. After an interruption, running jobs seal what they measured; the others are cancelled."""
        started, records = time.monotonic(), list[Record]()
        dispatches = [_Dispatch(contract) for contract in request.contracts]
        room = threading.BoundedSemaphore(_MOST_JOBS)
        with Interruption() as interruption:
            self.emit(events.RunStarted(tuple(contract.id for contract in request.contracts)))
            for dispatch in dispatches:
                threading.Thread(target=self._follow, args=(dispatch, room, interruption), daemon=True).start()
            try:
                for dispatch in dispatches:
                    records += self._listen(dispatch, request, interruption, dispatches)
            except KeyboardInterrupt:  # the user does not wait for the jobs to seal
                for dispatch in dispatches:
                    if dispatch.job is not None:
                        dispatch.job.cancel()
            took = time.monotonic() - started
            finished = events.RunFinished(len(request.contracts), tuple(records), took, interruption.requested)
            self.emit(finished)
        return finished

    def _follow(self, dispatch: _Dispatch, room: threading.BoundedSemaphore, interruption: Interruption) -> None:
        """Submit the job of a claim and queue its events until it has ended. Runs in a thread of its own."""
        contracts = {dispatch.contract.id: dispatch.contract}

        def on_line(line: str) -> None:
            try:
                event = decode(line, contracts)
                if not isinstance(event, events.ClaimPlanned) and event.id not in contracts:  # type: ignore[union-attr]
                    raise NoEventError(f"{event} is of another claim")
                dispatch.events.put(event)
            except NoEventError:
                self.remark(line.rstrip("\n"))

        with room:
            try:
                if not interruption.requested:
                    dispatch.job = self.submit(dispatch.contract)
                    dispatch.status = dispatch.job.follow(on_line, self.remark)
            except Exception as error:  # otherwise the main thread would never learn of it
                dispatch.trouble = f"the job cannot be followed: {described(error)}"
            finally:
                dispatch.events.put(None)

    def _listen(
        self, dispatch: _Dispatch, request: RunRequest, interruption: Interruption, dispatches: Sequence[_Dispatch]
    ) -> list[Record]:
        """Pass on the events of one claim's job. Returns its record; none if it was interrupted before it had one."""
        planned, ended = False, None
        while True:
            for other in dispatches if interruption.requested else ():
                if other.job is not None and not other.is_ending:
                    other.is_ending = True
                    other.job.interrupt()
            try:
                event = dispatch.events.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if event is None:
                break
            planned = planned or isinstance(event, events.ClaimPlanned)
            if isinstance(event, events.ClaimEnded):
                ended = event  # the last bundle counts
            else:
                self.emit(event)
        if ended is None and interruption.requested:
            return []
        reason = dispatch.trouble or (dispatch.job.ended_by() if dispatch.job else "no job was submitted")
        if ended is not None and not (reason := ended.unsealed):
            try:
                judged = self._seen(dispatch.contract, ended.run)
            except BundleRefused as error:
                reason = str(error)
            else:
                for trial in judged.trials:
                    self.emit(trial)
                finished = _explained(judged.finished, dispatch, interruption)
                self.emit(finished)
                return [finished.record]
        plan, finished = self.unmeasured(dispatch.contract, request, reason)
        if not planned:
            self.emit(plan)
        self.emit(finished)
        return [finished.record]

    def _seen(self, contract: Contract, run: str) -> JudgedBundle:
        """Return what a bundle says, as soon as it can be seen from here. Raises BundleRefused."""
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while True:
            try:
                return self.judged(contract, run)
            except FileNotFoundError as error:
                if time.monotonic() >= deadline:
                    raise BundleRefused(
                        f"the bundle {error.filename} cannot be seen from here: put the project on a filesystem that "
                        "the nodes share"
                    ) from error
            time.sleep(_LOOK_SECONDS)


def _explained(finished: events.ClaimFinished, dispatch: _Dispatch, interruption: Interruption) -> events.ClaimFinished:
    """Add Slurm's reason if Slurm interrupted the run. The bundle says only that it was interrupted."""
    if dispatch.job is None or interruption.requested or dispatch.status != ExitStatus.INTERRUPTED:
        return finished
    record = finished.record
    reason = Reason(ReasonCode.JOB_ENDED, text=dispatch.job.ended_by(), cause=record.reason)
    return replace(finished, record=replace(record, reason=reason))
