"""Decides which task starts next, from names, amounts and ranks alone, without processes and clocks.

    schedule = Schedule({"slots": 2.0, "memory": 16.0})
    schedule.add(Task("large", ({"slots": 1.0, "memory": 12.0},), rank=(0,)))
    schedule.add(Task("small", ({"slots": 1.0, "memory": 4.0},), rank=(1,)))
    for task, amounts in schedule.start():
        …                                     # later: schedule.end(task.name)

A task never takes a resource that a task of better rank waits for, so no task starves. A task with several ways takes
the way with the least loaded resources, and waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import final

__all__ = ["Amounts", "Schedule", "Task"]

Amounts = Mapping[str, float]
"""The amount of each resource."""
_ROUNDING = 1e-9


@final
@dataclass(frozen=True)
class Task:
    """A piece of work that needs resources while it runs."""

    name: str
    ways: tuple[Amounts, ...]
    """The resources of each way to execute it, such as on one GPU or another. Earlier ways win ties."""
    rank: tuple[float, ...]
    """Tasks with a smaller rank start first."""
    work: float = 0.0
    """Expected seconds of it and of all tasks that follow it in the same way."""


@final
class Schedule:
    """Waiting and running tasks, and their shared resources."""

    def __init__(self, capacity: Amounts) -> None:
        """Args:
        capacity: the total amount of each resource.
        """
        self._capacity = dict(capacity)
        self._waiting: dict[str, Task] = {}
        self._running: dict[str, Amounts] = {}
        self._work: dict[str, float] = {}
        """The work of each running task."""
        self._paused: dict[str, Amounts] = {}
        """The amounts that paused tasks released."""
        self._closed: set[str] = set()
        """Resources for which a paused task waits outside."""

    @property
    def is_over(self) -> bool:
        """Whether no task waits or runs."""
        return not self._waiting and not self._running

    def add(self, task: Task) -> None:
        """Add a waiting task. If it needs more of a resource than exists, it gets all of it.

        Raises:
            ValueError: no way names only resources that exist.
        """
        known = [way for way in task.ways if way.keys() <= self._capacity.keys()]
        if not known:
            raise ValueError(f"{task.name} cannot run in any way")
        ways = tuple({name: min(amount, self._capacity[name]) for name, amount in way.items()} for way in known)
        self._waiting[task.name] = replace(task, ways=ways)

    def start(self) -> list[tuple[Task, Amounts]]:
        """Start all tasks that can start, by rank. Returns them with their amounts."""
        free, load, started = self._free(), self._load(), []
        for task in sorted(self._waiting.values(), key=lambda task: task.rank):
            way = min(task.ways, key=lambda way: self._distance(way, task.work, load, free))
            if len(task.ways) > 1:
                load |= {name: load[name] + share for name, share in self._taken(way, task.work).items()}
            if lacking := _lacking(way, free):
                free |= dict.fromkeys(lacking, 0.0)
                continue
            del self._waiting[task.name]
            self._running[task.name] = {**self._running.get(task.name, {}), **way}
            self._work.setdefault(task.name, task.work)
            free |= {name: free[name] - amount for name, amount in way.items()}
            started.append((task, self._running[task.name]))
        return started

    def end(self, name: str) -> None:
        """Remove a task and free its resources."""
        del self._running[name], self._work[name]
        self._reopen(name)

    def pause(self, name: str, retained: Collection[str]) -> None:
        """Free the resources of a task that waits for another process, except `retained`."""
        amounts = self._running[name]
        self._paused[name] = {resource: amount for resource, amount in amounts.items() if resource not in retained}
        self._running[name] = {resource: amount for resource, amount in amounts.items() if resource in retained}
        self._closed |= set(retained) & amounts.keys()

    def resume(self, name: str) -> None:
        """Queue a paused task for its released resources, ahead of all others. It then starts again."""
        needs = self._paused[name]
        self._reopen(name)
        self._waiting[name] = Task(name, (needs,), rank=())

    def discard(self, names: Collection[str]) -> None:
        """Remove these tasks, unless they have started."""
        for name in set(names) - self._running.keys():
            self._waiting.pop(name, None)

    def _load(self) -> dict[str, float]:
        """Return the load of each resource in seconds, by running tasks and by waiting tasks with only one way."""
        load = dict.fromkeys(self._capacity, 0.0)
        settled = [(amounts, self._work[name]) for name, amounts in self._running.items()]
        settled += [(task.ways[0], task.work) for task in self._waiting.values() if len(task.ways) == 1]
        for amounts, work in settled:
            for name, share in self._taken(amounts, work).items():
                load[name] += share
        return load

    def _distance(self, way: Amounts, work: float, load: Amounts, free: Amounts) -> tuple[float, ...]:
        """Return the sort key of a way: whether another process holds a device, the load, the missing resources."""
        whole = sum(load[name] + share for name, share in self._taken(way, work).items())
        return (not self._closed.isdisjoint(way), whole, len(_lacking(way, free)))

    def _taken(self, amounts: Amounts, work: float) -> dict[str, float]:
        """Return the load on each resource in seconds, weighted by the share of it that the task uses."""
        return {name: work * amount / (self._capacity[name] or 1.0) for name, amount in amounts.items()}

    def _free(self) -> dict[str, float]:
        free = dict(self._capacity)
        for amounts in self._running.values():
            for name, amount in amounts.items():
                free[name] -= amount
        return free | dict.fromkeys(self._closed, 0.0)

    def _reopen(self, name: str) -> None:
        if self._paused.pop(name, None) is not None:
            retained = {resource for paused in self._paused for resource in self._running.get(paused, {})}
            self._closed &= retained


def _lacking(way: Amounts, free: Amounts) -> list[str]:
    return [name for name, amount in way.items() if amount > free[name] + _ROUNDING]
