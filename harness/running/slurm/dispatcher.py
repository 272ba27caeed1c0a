"""Runs claims as jobs of Slurm, all submitted at once, and passes on what they tell, one claim after the other.

A job is `harness run` on a node: requirements, leases, the fork server and the trials are the node's, and so is the
sealing, on the filesystem that the node shares with us.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from harness.base.vocabulary import ExitStatus, Verdict
from harness.contract import Contract
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.record import Record
from harness.running import events, wire
from harness.running.interruption import Interruption
from harness.running.request import RunRequest

__all__ = ["Dispatcher", "Followed", "Unmeasured"]


class Followed(Protocol):
    """A job that a dispatcher follows."""

    def follow(self, on_line: Callable[[str], None], on_word: Callable[[str], None]) -> int:
        """Listen until it has ended, and return an exit status."""
        ...

    def ended_by(self) -> str:
        """What became of it, in Slurm's words."""
        ...

    def interrupt(self) -> None:
        """Ask it to end in good order."""
        ...

    def cancel(self) -> None:
        """End it."""
        ...


Unmeasured = Callable[[Contract, RunRequest, str], tuple[events.ClaimPlanned, events.ClaimFinished]]
"""Seals a claim without measurements, for the reason given."""

_MOST_JOBS = 32
"""Jobs that are submitted and not over yet; more would mostly wait, and many sites limit them."""
_LOOK_SECONDS = 0.1
_VISIBLE_SECONDS = 10.0
"""How long a bundle may take to be seen from here: NFS keeps what it knows of a folder for some seconds."""


@dataclass
class _Dispatch:
    """A claim on its way through Slurm."""

    contract: Contract
    events: queue.SimpleQueue[events.Event | None] = field(default_factory=queue.SimpleQueue)
    job: Followed | None = None
    status: int = 0
    trouble: str = ""
    """Why no job could be submitted."""


class Dispatcher:
    """Has every claim run by a job of its own."""

    def __init__(
        self,
        submit: Callable[[Contract, RunRequest], Followed],
        unmeasured: Unmeasured,
        emit: events.Handler,
        remark: Callable[[str], None],
    ) -> None:
        """Args:
        submit: submits the job of a claim; OSError where that cannot be done.
        remark: takes what a job says besides its events, a line at a time.
        """
        self._submit, self._unmeasured, self._emit, self._remark = submit, unmeasured, emit, remark

    def run(self, request: RunRequest) -> events.RunFinished:
        """Run claims. Where the user interrupts, jobs that run are asked to seal what they measured; others go."""
        started, records = time.monotonic(), list[Record]()
        dispatches = [_Dispatch(contract) for contract in request.contracts]
        room = threading.BoundedSemaphore(_MOST_JOBS)
        with Interruption() as interruption:
            self._emit(events.RunStarted(tuple(contract.id for contract in request.contracts)))
            for dispatch in dispatches:
                arguments = (dispatch, request, room, interruption)
                threading.Thread(target=self._follow, args=arguments, daemon=True).start()
            asked = _Asked(dispatches)
            try:
                for dispatch in dispatches:
                    records += self._listen(dispatch, request, interruption, asked)
            except KeyboardInterrupt:  # of one who cannot wait for jobs to end in good order
                for dispatch in dispatches:
                    if dispatch.job is not None:
                        dispatch.job.cancel()
            took = time.monotonic() - started
            finished = events.RunFinished(len(request.contracts), tuple(records), took, interruption.requested)
            self._emit(finished)
        return finished

    def _follow(
        self, dispatch: _Dispatch, request: RunRequest, room: threading.BoundedSemaphore, interruption: Interruption
    ) -> None:
        """In a thread of the claim's own: submit its job and queue what it tells, until it is over."""
        contracts = {dispatch.contract.id: dispatch.contract}

        def on_line(line: str) -> None:
            try:
                dispatch.events.put(wire.decode(line, contracts))
            except wire.WireError:
                self._remark(line.rstrip("\n"))

        with room:
            try:
                if not interruption.requested:
                    dispatch.job = self._submit(dispatch.contract, request)
                    dispatch.status = dispatch.job.follow(on_line, self._remark)
            except Exception as error:  # a thread that ends without a word would be waited for in vain
                dispatch.trouble = f"the job cannot be followed: {type(error).__name__}: {error}"
            finally:
                dispatch.events.put(None)

    def _listen(
        self, dispatch: _Dispatch, request: RunRequest, interruption: Interruption, asked: _Asked
    ) -> list[Record]:
        """Pass on what one claim's job tells; its record, or none where the user interrupted it before it had one."""
        planned, finished = False, None
        while True:
            if interruption.requested:
                asked.to_end()
            try:
                event = dispatch.events.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if event is None:
                break
            planned = planned or isinstance(event, events.ClaimPlanned)
            if isinstance(event, events.ClaimFinished):
                finished = event  # held back: Slurm has a word to say on how it came to this
            else:
                self._emit(event)
        if finished is None:
            if interruption.requested:
                return []
            reason = dispatch.trouble or (dispatch.job.ended_by() if dispatch.job else "no job was submitted")
            plan, finished = self._unmeasured(dispatch.contract, request, reason)
            if not planned:
                self._emit(plan)
        else:
            finished = _explained(_visible(finished), dispatch, interruption)
        self._emit(finished)
        return [finished.record]


@dataclass
class _Asked:
    """Asks every job once to end, when it can be asked."""

    dispatches: Sequence[_Dispatch]
    done: set[int] = field(default_factory=set)

    def to_end(self) -> None:
        """Ask those that were not asked yet."""
        for index, dispatch in enumerate(self.dispatches):
            if dispatch.job is not None and index not in self.done:
                self.done.add(index)
                dispatch.job.interrupt()


def _visible(finished: events.ClaimFinished) -> events.ClaimFinished:
    """A verdict without evidence is none: the bundle must be seen from here."""
    bundle = finished.bundle
    deadline = time.monotonic() + _VISIBLE_SECONDS
    while bundle is not None and not bundle.is_dir() and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    if bundle is None or bundle.is_dir():
        return finished
    reason = Reason(ReasonCode.UNSEEN, str(bundle))
    verdict = Verdict.FAIL if finished.record.verdict is Verdict.FAIL else Verdict.NOT_MEASURED
    return events.ClaimFinished(replace(finished.record, verdict=verdict, reason=reason, proven=False), None)


def _explained(finished: events.ClaimFinished, dispatch: _Dispatch, interruption: Interruption) -> events.ClaimFinished:
    """With Slurm's word where it was Slurm that interrupted the run; the bundle only knows that it was interrupted."""
    if dispatch.job is None or interruption.requested or dispatch.status != ExitStatus.INTERRUPTED:
        return finished
    record = finished.record
    reason = Reason(ReasonCode.JOB_ENDED, text=dispatch.job.ended_by(), cause=record.reason)
    return replace(finished, record=replace(record, reason=reason))
