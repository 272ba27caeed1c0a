"""The results of a run of jobs, by the output of the jobs. No Slurm is needed."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from harness.base.device import Device
from harness.base.vocabulary import ExitStatus, Verdict
from harness.contract import Contract
from harness.contract.reasons import Reason, ReasonCode
from harness.judging.judge import judge
from harness.judging.record import Record
from harness.running import events
from harness.running.request import RunRequest
from harness.tools.slurm import dispatcher
from harness.tools.slurm.dispatcher import Dispatcher
from harness.tools.slurm.event_lines import encode
from harness.tools.slurm.judged_bundle import BundleRefused, JudgedBundle
from tests.contracts import healthy, observe
from tests.evidence.factory import claim_result

with TemporaryDirectory() as _folder:
    _RECORD = claim_result(Path(_folder)).record


@dataclass
class Told:
    """A job that prints lines and messages, and ends with a status."""

    lines: Sequence[str] = ()
    words: Sequence[str] = ()
    status: int = 0
    during: Callable[[], object] = lambda: None
    """Called after the output."""
    asked: list[str] = field(default_factory=list)

    def follow(self, on_line: Callable[[str], None], on_word: Callable[[str], None]) -> int:
        for line in self.lines:
            on_line(f"{line}\n")
        for word in self.words:
            on_word(word)
        self.during()
        return self.status

    def ended_by(self) -> str:
        return "Slurm job 12 TIMEOUT"

    def interrupt(self) -> None:
        self.asked.append("interrupt")

    def cancel(self) -> None:
        self.asked.append("cancel")


@dataclass
class Heard:
    """The events of a dispatcher."""

    finished: events.RunFinished
    events: list[events.Event]
    remarks: list[str]

    def kinds(self) -> list[type]:
        return [type(event) for event in self.events]


def named(contract: Contract, number: int) -> Contract:
    return replace(contract, id=f"F-DEMO-SORT-{number:03}")


def record(contract: Contract, **changes: Any) -> Record:
    """The record of a claim that passed."""
    return replace(_RECORD, id=contract.id, verdict=Verdict.PASS, **changes)


def planned(contract: Contract) -> events.ClaimPlanned:
    return events.ClaimPlanned(contract, "full", "", Device("cpu", "x86_64"), ())


def unmeasured(
    contract: Contract, request: RunRequest, reason: str
) -> tuple[events.ClaimPlanned, events.ClaimFinished]:
    sealed = record(contract, reason=Reason(ReasonCode.NOTHING_RAN, text=reason))
    return planned(contract), events.ClaimFinished(replace(sealed, verdict=Verdict.NOT_MEASURED), None)


Judged = Callable[[Contract, str], JudgedBundle]


def judged(**changes: Any) -> Judged:
    """What opens a bundle whose claim passes."""
    return lambda contract, run: JudgedBundle((), events.ClaimFinished(record(contract, **changes), Path(run)))


PASSED = judged()


def dispatched(submit: Callable[[Contract], Told], *contracts: Contract, judged: Judged = PASSED) -> Heard:
    heard, remarks = list[events.Event](), list[str]()
    finished = Dispatcher(submit, unmeasured, judged, heard.append, remarks.append).run(RunRequest(contracts))
    return Heard(finished, heard, remarks)


def ends(contract: Contract, unsealed: str = "") -> list[str]:
    """The lines of a job whose claim ends."""
    return [encode(planned(contract)), encode(events.ClaimEnded(contract.id, "run", unsealed))]


def test_claims_are_told_one_after_the_other(contract: Contract, tmp_path: Path) -> None:
    """The events of one claim come before those of the next, whatever job ends first.

    Lines that are no events are remarks.
    """
    claims = [named(contract, number) for number in range(4)]
    together = threading.Barrier(len(claims), timeout=20)

    def submit(contract: Contract) -> Told:
        late = 0.3 if contract is claims[0] else 0.0
        lines = ["no event", *ends(contract)]
        return Told(lines, ["a word"], during=lambda: (together.wait(), time.sleep(late)))

    heard = dispatched(submit, *claims)
    ids = [event.record.id for event in heard.events if isinstance(event, events.ClaimFinished)]
    assert ids == [claim.id for claim in claims] == [record.id for record in heard.finished.records]
    assert heard.kinds() == [
        events.RunStarted, *[events.ClaimPlanned, events.ClaimFinished] * 4, events.RunFinished,
    ]  # fmt: skip
    assert sorted(heard.remarks) == ["a word"] * 4 + ["no event"] * 4
    assert (heard.finished.declared, heard.finished.interrupted) == (4, False)
    assert heard.events[0] == events.RunStarted(tuple(claim.id for claim in claims))


def test_not_all_jobs_at_once(contract: Contract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some jobs are submitted at once, because sites limit the jobs of a user."""
    monkeypatch.setattr(dispatcher, "_MOST_JOBS", 2)
    running, most, turn = [0], [0], threading.Lock()

    def during() -> None:
        with turn:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.1)
        with turn:
            running[0] -= 1

    claims = [named(contract, number) for number in range(5)]
    heard = dispatched(lambda claim: Told(ends(claim), during=during), *claims)
    assert (len(heard.finished.records), most[0]) == (5, 2)


def test_a_job_without_a_verdict(contract: Contract) -> None:
    """The claim is NOT_MEASURED with Slurm's words. A plan that was already reported is not reported again."""
    for lines in ([], [encode(planned(contract))]):
        heard = dispatched(lambda claim, told=lines: Told(told, status=1), contract)  # type: ignore[misc]
        (only,) = heard.finished.records
        assert only.verdict is Verdict.NOT_MEASURED
        assert only.reason is not None
        assert only.reason.text == "Slurm job 12 TIMEOUT"
        assert heard.kinds().count(events.ClaimPlanned) == 1


def test_a_job_that_cannot_be_submitted(contract: Contract) -> None:
    """The claim is NOT_MEASURED, and the reason has the error."""

    def submit(contract: Contract) -> Told:
        raise OSError("no srun")

    (only,) = dispatched(submit, contract).finished.records
    assert only.reason is not None
    assert only.reason.text == "the job cannot be followed: OSError: no srun"


def test_a_bundle_that_is_not_seen_here(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher waits some time for a shared file system to show the bundle."""
    attempts = itertools.count(1)

    def late(contract: Contract, run: str) -> JudgedBundle:
        if next(attempts) < 4:
            raise FileNotFoundError(2, "", run)
        return judged()(contract, run)

    monkeypatch.setattr(dispatcher, "_VISIBLE_SECONDS", 20.0)
    heard = dispatched(lambda claim: Told(ends(claim)), contract, judged=late)
    assert heard.finished.records == (record(contract),)
    monkeypatch.setattr(dispatcher, "_VISIBLE_SECONDS", 0.0)
    attempts = itertools.count(1)
    (only,) = dispatched(lambda claim: Told(ends(claim)), contract, judged=late).finished.records
    assert only.verdict is Verdict.NOT_MEASURED


def test_a_bundle_that_is_refused(contract: Contract) -> None:
    """The claim is NOT_MEASURED, with the reason."""

    def refuses(contract: Contract, run: str) -> JudgedBundle:
        raise BundleRefused(f"{run} is unsound")

    (only,) = dispatched(lambda claim: Told(ends(claim)), contract, judged=refuses).finished.records
    assert (only.verdict, only.reason) == (
        Verdict.NOT_MEASURED,
        Reason(ReasonCode.NOTHING_RAN, text="run is unsound"),
    )


def test_the_trials_of_a_bundle(contract: Contract) -> None:
    """The results of the trials are those of the bundle, too."""
    event = events.TrialFinished(contract.id, events.SUBJECT, judge(contract, observe(healthy())), None, 1.0)
    finished = events.ClaimFinished(record(contract), Path("run"))
    heard = dispatched(
        lambda claim: Told(ends(claim)), contract, judged=lambda claim, run: JudgedBundle((event,), finished)
    )
    assert heard.events[-3:-1] == [event, finished]


def test_a_claim_without_a_bundle(contract: Contract) -> None:
    """The event says why there is no bundle, so the dispatcher does not look for one."""
    (only,) = dispatched(lambda claim: Told(ends(claim, "a scaffold")), contract).finished.records
    assert only.reason == Reason(ReasonCode.NOTHING_RAN, text="a scaffold")


def test_events_of_other_claims_are_remarks(contract: Contract) -> None:
    other = named(contract, 7)
    heard = dispatched(lambda claim: Told([*ends(other), encode(events.Remarked(other.id, "hm"))]), contract)
    assert len(heard.remarks) == 3
    assert heard.finished.records[0].verdict is Verdict.NOT_MEASURED


@pytest.mark.parametrize("status", [ExitStatus.INTERRUPTED, ExitStatus.NOT_MEASURED])
def test_a_run_that_slurm_interrupted(contract: Contract, tmp_path: Path, status: ExitStatus) -> None:
    """The record has Slurm's words, and the job's own reason as their cause.

    A job that ended otherwise keeps its record.
    """
    why = Reason(ReasonCode.NOTHING_RAN, text="interrupted")
    told = judged(reason=why)
    (only,) = dispatched(lambda claim: Told(ends(claim), status=status), contract, judged=told).finished.records
    by_slurm = Reason(ReasonCode.JOB_ENDED, text="Slurm job 12 TIMEOUT", cause=why)
    assert only.reason == (by_slurm if status is ExitStatus.INTERRUPTED else why)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interruption(contract: Contract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job is asked once to end. A verdict that arrives later counts, and no further job is submitted."""
    monkeypatch.setattr(dispatcher, "_MOST_JOBS", 2)
    claims = [named(contract, number) for number in range(3)]
    why = Reason(ReasonCode.NOTHING_RAN, text="interrupted")
    jobs, interrupted, first = dict[str, Told](), threading.Event(), iter([True])

    def during() -> None:
        deadline = time.monotonic() + 20
        while len(jobs) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        if not interrupted.is_set():
            interrupted.set()
            interrupt()
        while not all(job.asked for job in jobs.values()) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)  # the dispatcher looks several times

    def submit(contract: Contract) -> Told:
        lines = ends(contract) if next(first, False) else []
        jobs[contract.id] = Told(lines, status=ExitStatus.INTERRUPTED, during=during)
        return jobs[contract.id]

    heard = dispatched(submit, *claims, judged=judged(reason=why))
    assert heard.finished.interrupted
    assert heard.finished.declared == 3
    (only,) = heard.finished.records
    assert only.reason == why
    assert [job.asked for job in jobs.values()] == [["interrupt"], ["interrupt"]]
    assert only.id in jobs


def test_a_user_who_does_not_wait(contract: Contract) -> None:
    """The third signal cancels every job."""
    over = threading.Event()

    def during() -> None:
        for _ in range(3):
            interrupt()
            time.sleep(0.3)
        over.wait(20)

    job = Told(during=during)
    heard = dispatched(lambda claim: job, contract)
    over.set()
    assert job.asked == ["interrupt", "cancel"]
    assert heard.finished.interrupted
