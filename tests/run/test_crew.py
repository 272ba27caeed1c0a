"""What a crew's threads do when a run is interrupted, and when one of them fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from harness.running.crew import Crew, Turn
from harness.running.interruption import Interruption
from harness.running.scheduler import Schedule, Task

TASK = Task("one", ({"slots": 1.0},), (0,))


class Asked:
    """An interruption that comes when a test says so."""

    requested = False


def crew_of(work: Any, asked: Asked) -> Crew:
    """A crew with one task."""
    schedule = Schedule({"slots": 1.0})
    schedule.add(TASK)
    return Crew(schedule, work, cast(Interruption, asked))


def await_threads() -> None:
    """Wait for the tasks' threads."""
    for thread in threading.enumerate():
        if thread.name == TASK.name:
            thread.join(60)


def test_what_was_idle_when_the_run_was_interrupted_does_not_go_on() -> None:
    """An import that ends then is followed by no trial."""
    asked, told = Asked(), list[str]()

    def work(turn: Turn) -> Sequence[Task]:
        with turn.idle():
            asked.requested = True
        told.append("went on")
        return ()

    crew_of(work, asked).run(lambda: told.append("interrupt"))
    await_threads()
    assert told == ["interrupt"]


def test_after_an_interruption_nothing_new_starts() -> None:
    """Neither what follows the last task that ran, nor what waits."""
    asked, ran = Asked(), list[str]()

    def work(turn: Turn) -> Sequence[Task]:
        ran.append(turn.task.name)
        asked.requested = True
        return (Task("after", TASK.ways, (1,)),)

    crew_of(work, asked).run(lambda: None)
    assert ran == ["one"]


def test_a_defect_of_the_harness_ends_the_run() -> None:
    """Its exception reaches the caller, so no run waits for a task that has no thread."""

    def work(turn: Turn) -> Sequence[Task]:
        raise ArithmeticError("a defect")

    with pytest.raises(ArithmeticError, match="a defect"):
        crew_of(work, Asked()).run(lambda: None)
