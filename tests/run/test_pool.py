"""The threads of a pool, if a run is interrupted, and if one of them fails."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from harness.running import pool
from harness.running.interruption import Interruption
from harness.running.pool import Pool, Turn, TurnInterrupted
from harness.running.scheduler import Schedule, Task

TASK = Task("one", ({"slots": 1.0},), (0,))
OTHER = Task("two", ({"slots": 1.0},), (1,))


class Asked:
    """An interruption at a moment that the test chooses."""

    requested = False

    def request(self) -> None:
        self.requested = True


def pool_of(work: Any, asked: Asked, *others: Task) -> Pool:
    """Return a pool with these tasks. It can run one at a time."""
    schedule = Schedule({"slots": 1.0})
    for task in (TASK, *others):
        schedule.add(task)
    return Pool(schedule, work, cast(Interruption, asked))


def await_threads() -> None:
    """Wait for the tasks' threads."""
    for thread in threading.enumerate():
        if thread.name == TASK.name:
            thread.join(60)
            assert not thread.is_alive()


def test_what_was_idle_when_the_run_was_interrupted_does_not_go_on() -> None:
    """If an import ends after the interruption, no trial follows it."""
    asked, told = Asked(), list[str]()

    def work(turn: Turn) -> Sequence[Task]:
        with turn.idle():
            asked.requested = True
        told.append("went on")
        return ()

    pool_of(work, asked).run(lambda: told.append("interrupt"))
    await_threads()
    assert told == ["interrupt"]


def test_a_wait_that_is_interrupted_before_it_begins_ends_the_run() -> None:
    """The device was busy at the first attempt, and the interruption came before it."""
    asked, over = Asked(), threading.Event()

    def work(turn: Turn) -> Sequence[Task]:
        asked.requested = True
        raise TurnInterrupted

    def run() -> None:
        pool_of(work, asked).run(lambda: None)
        over.set()

    threading.Thread(target=run, daemon=True).start()
    assert over.wait(10)


def test_after_an_interruption_nothing_new_starts() -> None:
    """Neither the task after the last one nor a waiting task starts."""
    asked, ran = Asked(), list[str]()

    def work(turn: Turn) -> Sequence[Task]:
        ran.append(turn.task.name)
        asked.requested = True
        return (Task("after", TASK.ways, (1,)),)

    pool_of(work, asked).run(lambda: None)
    assert ran == ["one"]


def test_a_defect_of_the_harness_ends_the_run() -> None:
    """The exception reaches the caller, so no run waits for a task that has no thread."""

    def work(turn: Turn) -> Sequence[Task]:
        raise ArithmeticError("a defect")

    with pytest.raises(ArithmeticError, match="a defect"):
        pool_of(work, Asked()).run(lambda: None)


def test_after_a_wait_a_task_goes_on_when_its_resources_are_free() -> None:
    """Another task has the resources meanwhile."""
    began, back, told = threading.Event(), threading.Event(), list[str]()

    def work(turn: Turn) -> Sequence[Task]:
        if turn.task.name == OTHER.name:
            began.set()
            assert back.wait(60)
            time.sleep(0.05)
        else:
            turn.pause(())
            assert began.wait(60)
            back.set()
            turn.resume()
        told.append(turn.task.name)
        return ()

    pool_of(work, Asked(), OTHER).run(lambda: None)
    assert told == ["two", "one"]


def test_no_thread_waits_for_resources_after_an_interruption() -> None:
    """A waiting thread would keep its lease."""
    asked, began, back = Asked(), threading.Event(), threading.Event()

    def work(turn: Turn) -> Sequence[Task]:
        if turn.task.name == OTHER.name:
            began.set()
            assert back.wait(60)
            asked.requested = True
        else:
            turn.pause(())
            assert began.wait(60)
            with turn.idle():
                back.set()
                turn.resume()
        return ()

    pool_of(work, asked, OTHER).run(lambda: None)
    await_threads()


def test_a_signal_whose_handler_outlasts_the_look_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool looks again after it, in whatever part of a look the signal came."""
    asked, begun, over = Asked(), threading.Event(), threading.Event()
    monkeypatch.setattr(pool, "_LOOK_SECONDS", 0.05)

    def handle(number: int, frame: object) -> None:
        time.sleep(0.1)
        asked.requested = True

    def work(turn: Turn) -> Sequence[Task]:
        begun.set()
        with turn.idle():
            over.wait(60)
        return ()

    before = signal.signal(signal.SIGUSR1, handle)
    main = threading.main_thread().ident
    assert main is not None
    send = threading.Thread(
        target=lambda: (begun.wait(60), time.sleep(0.02), signal.pthread_kill(main, signal.SIGUSR1))
    )
    rescue = threading.Timer(30, over.set)
    try:
        send.start()
        rescue.start()
        started = time.monotonic()
        pool_of(work, asked).run(lambda: None)
        assert time.monotonic() - started < 30
    finally:
        rescue.cancel()
        over.set()
        signal.signal(signal.SIGUSR1, before)
        await_threads()
