"""The engine with a simulated executor: Ctrl-C and other signals at each stage of a run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.base.vocabulary import Fate, Phase, Verdict
from harness.evidence.seal import ClaimResult
from harness.execution.executor import TrialRequest
from harness.execution.lease import CPU, lease
from harness.judging.observation import Ending, EndingKind
from harness.running import events
from harness.running.interruption import Interruption
from tests.run.pretending import BROKEN, HEALTHY, Behaviour, Bench, honest, only


def ctrl_c() -> None:
    """Send the signal of Ctrl-C, as a terminal does."""
    os.kill(os.getpid(), signal.SIGINT)


def hanging(bench: Bench) -> Behaviour:
    """Trials that run until they are interrupted."""

    def behave(request: TrialRequest) -> Ending:
        assert bench.executor.interrupted.wait(60)
        return Ending(EndingKind.INTERRUPTED, Phase.SUBJECT, "the run was interrupted")

    return behave


def test_ctrl_c_while_trials_run(bench: Callable[..., Bench]) -> None:
    """Running trials end, waiting ones do not start, and the evidence is sealed."""
    whole = bench(honest)
    hang = hanging(whole)

    def behave(request: TrialRequest) -> Any:
        ctrl_c()
        return hang(request)

    whole.executor.behave = behave
    finished = whole.run(jobs=1)
    assert finished.interrupted
    record = only(finished)
    assert record.verdict is Verdict.NOT_MEASURED
    assert {mutant.fate for mutant in record.mutants} == {Fate.INTERRUPTED}
    assert len(whole.executor.started) == 1
    assert len(whole.sealed) == 1


def test_ctrl_c_as_the_last_trial_that_runs_ends(bench: Callable[..., Bench]) -> None:
    """All finished trials are good, but a waiting mutant did not run, so the verdict is not PASS."""
    whole = bench(honest)

    def behave(request: TrialRequest) -> Mapping[str, Any]:
        if request.subject.endswith(":Sorter"):
            return HEALTHY
        ctrl_c()
        assert whole.executor.interrupted.wait(60)
        return BROKEN

    whole.executor.behave = behave
    (mutant,) = whole.contract.mutants
    record = only(whole.run(replace(whole.contract, mutants=(mutant, replace(mutant, id="waits"))), jobs=1))
    assert [mutant.fate for mutant in record.mutants] == [Fate.KILLED, Fate.INTERRUPTED]
    assert (record.verdict, record.proven) == (Verdict.NOT_MEASURED, False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_sealing(bench: Callable[..., Bench], number: signal.Signals) -> None:
    """The bundle is finished, the next claim does not begin, and the caller's handlers are restored."""
    before = signal.getsignal(number)
    whole = bench(honest, lambda: os.kill(os.getpid(), number))
    finished = whole.run(whole.contract, whole.contract, jobs=1)
    assert finished.interrupted
    assert only(finished).verdict is Verdict.PASS
    assert len(whole.sealed) == 1
    assert signal.getsignal(number) is before


def test_a_signal_while_sealing_what_cannot_run(bench: Callable[..., Bench]) -> None:
    """The next claim is not sealed, although none of its trials could have run."""
    whole = bench(honest, lambda: os.kill(os.getpid(), signal.SIGINT))
    whole.engine._host = replace(whole.engine._host, gpus=())
    profile = replace(whole.contract.profiles["reduced"], requires={"device": "cuda"})
    claim = replace(whole.contract, profiles={"reduced": profile})
    finished = whole.run(claim, replace(claim, id="F-DEMO-OTHER-001"), profile="reduced")
    assert finished.interrupted
    assert [record.id for record in finished.records] == [claim.id]


def test_a_defect_of_the_harness_in_one_claim(bench: Callable[..., Bench]) -> None:
    """The exception reaches the caller. Before that, the other claims are sealed with what was measured."""
    whole, other = bench(honest), threading.Event()
    seal = whole.engine._recorder._seal

    def sealing(result: ClaimResult) -> Path:
        if result.record.id == "F-DEMO-FIRST-001":
            raise ArithmeticError("a defect")
        return seal(result)

    whole.engine._recorder._seal = sealing

    def behave(request: TrialRequest) -> Mapping[str, Any] | Ending:
        if request.contract.id == "F-DEMO-FIRST-001":
            assert other.wait(60)
            return BROKEN
        if request.subject.endswith(":Sorter"):
            return HEALTHY
        other.set()
        return hanging(whole)(request)

    whole.executor.behave = behave
    first = replace(whole.contract, id="F-DEMO-FIRST-001")
    with pytest.raises(ArithmeticError, match="a defect"):
        whole.run(whole.contract, first, jobs=2)
    (result,) = whole.sealed
    assert [mutant.fate for mutant in result.record.mutants] == [Fate.INCONCLUSIVE]
    assert whole.executor.closed


def test_ctrl_c_while_importing(bench: Callable[..., Bench]) -> None:
    """Nothing was measured, so nothing is sealed. The run ends at once with a message."""

    over = threading.Event()

    def importing() -> None:
        ctrl_c()
        over.wait(300)

    whole = bench(honest, importing=importing)
    finished = whole.run()
    assert not over.is_set()
    over.set()
    assert (finished.interrupted, finished.records, whole.sealed) == (True, (), [])
    assert whole.executor.closed


def test_ctrl_c_while_waiting_for_the_device(bench: Callable[..., Bench]) -> None:
    """Ctrl-C ends a wait of ten minutes, and the event names the holder."""
    whole = bench(honest)

    def listen(event: events.Event) -> None:
        whole.heard.append(event)
        if isinstance(event, events.ClaimWaiting):
            ctrl_c()

    whole.engine._emit = listen
    with lease(CPU, mode="exclusive", holder="F-OTHER-001", wait_seconds=0):
        finished = whole.run()
    assert (finished.interrupted, finished.records, whole.sealed) == (True, (), [])
    (waited,) = (event for event in whole.heard if isinstance(event, events.ClaimWaiting))
    assert finished.awaited == waited.holders[0]
    assert finished.awaited.startswith("F-OTHER-001 (pid ")
    assert whole.executor.started == []


def test_the_third_ctrl_c_is_heeded_at_once() -> None:
    """The third signal interrupts at any point."""
    with Interruption() as interruption:
        ctrl_c()
        ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
    assert interruption.requested


def test_ignored_signals_stay_ignored() -> None:
    """A run under nohup survives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
        assert not interruption.requested
    finally:
        signal.signal(signal.SIGHUP, before)
