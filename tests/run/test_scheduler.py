"""The schedule never uses more than there is, passes no task over for ever, and always ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.running.scheduler import Amounts, Schedule, Task

CAPACITY = {"slots": 4.0, "memory": 10.0, "a": 4.0, "b": 4.0}
AMOUNTS = st.floats(0, 20, allow_nan=False)
WAYS = st.lists(
    st.builds(
        lambda slots, memory, device, share: {"slots": slots, "memory": memory, device: share},
        st.floats(0.5, 8),
        AMOUNTS,
        st.sampled_from(["a", "b"]),
        st.sampled_from([1.0, 4.0]),
    ),
    min_size=1,
    max_size=2,
)
TASKS = st.lists(st.tuples(WAYS, st.integers(0, 3)), min_size=1, max_size=12)


def tasks_of(drawn: list[tuple[list[Amounts], int]]) -> list[Task]:
    """Tasks with names and different ranks."""
    return [Task(str(number), tuple(ways), (rank, number)) for number, (ways, rank) in enumerate(drawn)]


def free_of(running: Mapping[str, Amounts]) -> dict[str, float]:
    """The resources that are left."""
    return {name: size - sum(used.get(name, 0) for used in running.values()) for name, size in CAPACITY.items()}


def fits(way: Amounts, free: Amounts) -> bool:
    return all(min(amount, CAPACITY[name]) <= free[name] + 1e-6 for name, amount in way.items())


@given(drawn=TASKS, late=TASKS, data=st.data())
def test_any_course(drawn: Any, late: Any, data: st.DataObject) -> None:
    """This holds for any order of ends and pauses, and for tasks that come later."""
    schedule, running, paused = Schedule(CAPACITY), dict[str, Amounts](), set[str]()
    for task in tasks_of(drawn):
        schedule.add(task)
    to_come = [Task(f"late {task.name}", task.ways, task.rank) for task in tasks_of(late)]
    began: list[str] = []
    while not schedule.is_over or to_come:
        started = schedule.start()
        for task, amounts in started:
            assert task.name not in running or task.name in paused
            running[task.name] = amounts
            paused.discard(task.name)
            began.append(task.name)
        assert all(left >= -1e-6 for left in free_of(running).values())
        if not running:
            assert to_come  # otherwise a waiting task has the whole machine, and does not start
        name = data.draw(st.sampled_from(sorted(running))) if running else ""
        match data.draw(st.sampled_from(["end", "end", "pause", "add"])):
            case "add" if to_come:
                schedule.add(to_come.pop())
            case "pause" if name and name not in paused:
                kept = [key for key in ("a", "b") if key in running[name]]
                schedule.pause(name, kept)
                running[name] = {key: amount for key, amount in running[name].items() if key in kept}
                paused.add(name)
            case _ if name in paused:
                schedule.resume(name)
                running[name], wanted = {**running[name]}, name
                for task, amounts in schedule.start():
                    running[task.name] = amounts
                    began.append(task.name)
                    paused.discard(task.name)
                if wanted in paused:  # other tasks use the resources that it gave back, and it is the next to get them
                    for other in sorted(running.keys() - {wanted}):
                        if other not in paused:
                            schedule.end(other)
                            del running[other]
                    for task, amounts in schedule.start():
                        running[task.name] = amounts
                        began.append(task.name)
                        paused.discard(task.name)
                    assert wanted not in paused
            case _ if name:
                schedule.end(name)
                del running[name]
            case _ if to_come:
                schedule.add(to_come.pop())
    assert {name.removeprefix("late ") for name in began if name.startswith("late")} == {
        task.name for task in tasks_of(late)
    }
    assert {name for name in began if not name.startswith("late")} == {task.name for task in tasks_of(drawn)}


@given(drawn=TASKS)
def test_no_task_takes_what_one_before_it_lacks(drawn: Any) -> None:
    """If a task waits for a scarce resource, it gets the next share. So it does not wait for ever."""
    schedule, running, waiting = Schedule(CAPACITY), dict[str, Amounts](), {task.name: task for task in tasks_of(drawn)}
    for task in waiting.values():
        schedule.add(task)
    while waiting:
        before = free_of(running)
        for task, amounts in schedule.start():
            for other in waiting.values():
                if other.rank < task.rank and other.name not in running:
                    lacks = [
                        {key for key, amount in way.items() if min(amount, CAPACITY[key]) > before[key] + 1e-6}
                        for way in other.ways
                    ]
                    taken = {key for key, amount in amounts.items() if amount > 1e-6}
                    assert not all(lacks) or any(not (lacking & taken) for lacking in lacks)
            running[task.name] = amounts
        for name in running:
            waiting.pop(name, None)
        ended = min(running)
        schedule.end(ended)
        del running[ended]


def test_order() -> None:
    """Tasks begin by rank. A task may pass one that does not fit only if it takes nothing that the other lacks."""
    schedule = Schedule({"slots": 2.0, "memory": 10.0})
    schedule.add(Task("third", ({"slots": 1.0, "memory": 1.0},), (3,)))
    schedule.add(Task("second", ({"slots": 1.0, "memory": 9.0},), (2,)))
    schedule.add(Task("first", ({"slots": 1.0, "memory": 5.0},), (1,)))
    schedule.add(Task("fourth", ({"slots": 1.0},), (4,)))
    assert [task.name for task, _ in schedule.start()] == ["first", "fourth"]
    schedule.end("first")
    assert [task.name for task, _ in schedule.start()] == ["second"]


def test_rounding_keeps_no_task_waiting() -> None:
    """In floating point, 0.3 - 0.1 is less than 0.2. The task for 0.2 starts all the same."""
    schedule = Schedule({"memory": 0.3})
    for number, memory in enumerate((0.1, 0.2)):
        schedule.add(Task(str(number), ({"memory": memory},), (number,)))
    assert len(schedule.start()) == 2


def test_a_device_for_which_one_waits_outside_is_closed() -> None:
    """Other tasks on other devices get what it gave back. When the device is free, the task comes first."""
    schedule = Schedule(CAPACITY)
    for number, device in enumerate("aab"):
        schedule.add(Task(str(number), ({"slots": 4.0, device: 1.0},), (number,)))
    assert [task.name for task, _ in schedule.start()] == ["0"]
    schedule.pause("0", ["a"])
    assert [task.name for task, _ in schedule.start()] == ["2"]
    schedule.resume("0")
    assert schedule.start() == []
    schedule.end("2")
    assert [(task.name, amounts) for task, amounts in schedule.start()] == [("0", {"slots": 4.0, "a": 1.0})]


def test_ways_get_equal_shares_of_the_work() -> None:
    """The shares are equal, although each device has room for all of the work.

    What follows a task counts from its start.
    """
    schedule = Schedule({"slots": 16.0, "a": 16.0, "b": 16.0})
    ways = tuple({"slots": 1.0, device: 1.0} for device in "ab")
    for number, work in enumerate((9.0, 5.0, 4.0, 2.0)):
        schedule.add(Task(str(number), ways, (number,), work))
    got = {task.name: amounts for task, amounts in schedule.start()}
    assert {name: min(used.keys() & {"a", "b"}) for name, used in got.items()} == {
        "0": "a",
        "1": "b",
        "2": "b",
        "3": "a",
    }
    schedule.end("0")
    schedule.add(Task("0 after", (got["0"],), (0, 1), 3.0))
    schedule.add(Task("4", ways, (4,), 1.0))
    assert [(task.name, "a" in amounts) for task, amounts in schedule.start()] == [("0 after", True), ("4", True)]


def test_a_task_waits_for_the_device_with_the_least_to_do() -> None:
    """It waits although another device is free now. A task that needs a device alone takes it for all of its time."""
    schedule = Schedule({"slots": 16.0, "a": 4.0, "b": 4.0})
    schedule.add(Task("alone", ({"slots": 4.0, "a": 4.0},), (0,), 3.0))
    for number in range(1, 5):
        schedule.add(Task(str(number), ({"slots": 1.0, "a": 1.0}, {"slots": 1.0, "b": 1.0}), (number,), 8.0))
    assert [task.name for task, _ in schedule.start()] == ["alone", "1", "2", "4"]
    schedule.end("alone")
    assert [(task.name, amounts) for task, amounts in schedule.start()] == [("3", {"slots": 1.0, "a": 1.0})]


def test_no_task_waits_for_a_device_that_another_process_has() -> None:
    """A task takes another device, as long as there is one."""
    schedule = Schedule({"slots": 16.0, "a": 4.0, "b": 4.0})
    ways = ({"slots": 1.0, "a": 1.0}, {"slots": 1.0, "b": 1.0})
    schedule.add(Task("outside", ways[:1], (0,)))
    schedule.start()
    schedule.pause("outside", ["a"])
    schedule.add(Task("busy", ways[1:], (1,), 9.0))
    schedule.add(Task("next", ways, (2,), 1.0))
    assert [(task.name, amounts) for task, amounts in schedule.start()] == [("busy", ways[1]), ("next", ways[1])]


def test_a_task_that_waited_outside_still_counts_its_work() -> None:
    """The next task takes the other device, although the first one has room."""
    schedule = Schedule({"slots": 16.0, "a": 4.0, "b": 4.0})
    ways = ({"slots": 1.0, "a": 1.0}, {"slots": 1.0, "b": 1.0})
    schedule.add(Task("long", ways[:1], (0,), 9.0))
    schedule.start()
    schedule.pause("long", ["a"])
    schedule.resume("long")
    assert [task.name for task, _ in schedule.start()] == ["long"]
    schedule.add(Task("next", ways, (1,), 1.0))
    assert [(task.name, amounts) for task, amounts in schedule.start()] == [("next", ways[1])]


def test_a_device_is_open_again_when_the_last_one_has_given_up() -> None:
    """A task may end while it waits outside. As long as another one waits, no task gets the device."""
    schedule = Schedule({"slots": 16.0, "a": 4.0})
    for number in range(3):
        schedule.add(Task(str(number), ({"slots": 1.0, "a": 1.0},), (number,)))
        assert [task.name for task, _ in schedule.start()] == [str(number)]
    schedule.pause("0", ["a"])
    schedule.pause("1", ["a"])
    schedule.add(Task("next", ({"slots": 1.0, "a": 1.0},), (3,)))
    assert schedule.start() == []
    schedule.end("0")
    assert schedule.start() == []
    schedule.end("1")
    assert [task.name for task, _ in schedule.start()] == ["next"]


def test_a_task_that_waits_for_its_resources_again_is_not_forgotten() -> None:
    """It has started, so its thread waits for them. Tasks that have not started are forgotten."""
    schedule = Schedule({"slots": 1.0, "a": 1.0})
    schedule.add(Task("began", ({"slots": 1.0, "a": 1.0},), (0,)))
    schedule.start()
    schedule.pause("began", ["a"])
    schedule.add(Task("other", ({"slots": 1.0},), (1,)))
    schedule.start()
    schedule.resume("began")
    schedule.add(Task("new", ({"slots": 1.0},), (2,)))
    schedule.discard(["began", "new"])
    schedule.end("other")
    assert [task.name for task, _ in schedule.start()] == ["began"]
    schedule.end("began")
    assert schedule.is_over


def test_what_the_machine_does_not_have() -> None:
    """A task that needs more than there is gets everything, even if that is nothing. An unknown resource is refused."""
    schedule = Schedule({"slots": 2.0, "disk": 0.0})
    schedule.add(Task("large", ({"slots": 9.0, "disk": 1.0},), (0,), 1.0))
    assert [amounts for _, amounts in schedule.start()] == [{"slots": 2.0, "disk": 0.0}]
    with pytest.raises(ValueError, match="cannot run"):
        schedule.add(Task("strange", ({"gpu": 1.0},), (0,)))
