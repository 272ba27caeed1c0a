"""Streams that the falsifier gives to a subject, so that it can make any of them slow.

On a GPU the streams are CUDA streams. A slow one launches a sleeping kernel before each of its tasks.

On a CPU each stream is a queue. The host appends tasks, and a schedule picks the queue whose first task runs next. Only
events order tasks of different queues. A slow queue advances only when no other queue can, so a missing wait shows on
every machine, and in every run alike. If `slow` is "long", which a CPU alone has, the tasks of all streams but COMPUTE
take long: a task reads its inputs as soon as it may, but the outputs of a stream's last tasks before a wait appear only
when no other stream can advance.

Memory behaves as in torch's caching allocator: what the host lets go of is given away again at once in the stream that
allocated it, though tasks of other streams may still read it, unless `keep` said so.
"""

from __future__ import annotations

import math
import random
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

COMPUTE = "compute"
"""The stream of training steps. Others have names of the subject's choice."""
LONG = "long"
"""Every stream but COMPUTE is slow within its tasks, not before them. Only queues on a CPU can hold a task there."""
_EAGER, _RANDOM = "none", "random"
_CYCLES = 20_000_000
"""Of a sleeping kernel: about 10 ms, longer than the host needs to launch a step."""
_GRAIN = 512
"""Memory is given away in pieces of so many bytes, as CUDA's allocator of torch does."""


class Event(Protocol):
    """A place in a stream."""


class Stream(Protocol):
    """Tasks that run one after another, beside those of other streams."""

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return memory of this stream, with anything in it."""
        ...

    def run(self, task: Callable[..., object], *arguments: Any) -> None:
        """Run `task(*arguments)` behind what the stream was given before.

        As a kernel, a task keeps no memory alive: give it tensors, or maps of tensors, as arguments, and do not close
        over them.
        """
        ...

    def record(self) -> Event:
        """Return the place behind what the stream was given so far."""
        ...

    def wait(self, event: Event) -> None:
        """Hold what the stream is given from now on until an event of another stream is reached."""
        ...

    def keep(self, tensor: Tensor) -> None:
        """Say that this stream uses memory of another one, as `Tensor.record_stream` does."""
        ...


class Streams(Protocol):
    """The streams of one training run."""

    device: str

    def stream(self, name: str) -> Stream:
        """Return the stream of this name, a new one when first asked."""
        ...

    def synchronize(self) -> None:
        """Wait for all tasks."""
        ...

    def ahead(self) -> frozenset[str]:
        """Return the streams that ended a task before an earlier task of the stream of steps."""
        ...


def streams_on(device: str, slow: str, seed: int) -> Streams:
    """Return new streams.

    Args:
        slow: the name of a stream that sleeps before each task; "none"; "random" for any, changing; or LONG.

    Raises:
        ValueError: LONG on a GPU.
    """
    chance = random.Random(seed)  # noqa: S311 - a schedule needs no cryptography
    if torch.device(device).type == "cuda":
        if slow == LONG:
            raise ValueError("tasks of a GPU cannot be held: long ones are for a CPU")
        return _CudaStreams(device, slow, chance)
    return _HostStreams(device, slow, chance)


def _overtaking(finished: list[tuple[int, str]]) -> frozenset[str]:
    """Return the streams with a task that ended before an earlier one of COMPUTE, from numbers in order of end."""
    pending = sorted(number for number, name in finished if name == COMPUTE)
    ahead = set()
    for number, name in finished:
        if name == COMPUTE:
            pending.remove(number)
        elif pending and pending[0] < number:
            ahead.add(name)
    return frozenset(ahead)


@dataclass(frozen=True)
class _HostEvent:
    stream: _HostStream
    place: int


@dataclass
class _HostStream:
    name: str
    streams: _HostStreams
    given: int = 0
    done: int = 0
    queue: deque[tuple[int, Callable[[], object] | _HostEvent]] = field(default_factory=deque)
    free: dict[int, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    leaving: list[tuple[Tensor, list[_HostEvent]]] = field(default_factory=list)
    """Memory that the host let go of, and what must be reached before it is free."""
    ending: Callable[[], object] | None = None
    """What the task that has begun has yet to write."""

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        self._take_back()
        size = max(1, math.ceil(math.prod(shape) * dtype.itemsize / _GRAIN)) * _GRAIN
        block = self.free[size].pop() if self.free[size] else torch.full((size,), 255, dtype=torch.uint8)
        tensor = block[: math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
        weakref.finalize(tensor, self._let_go, block).atexit = False
        return tensor

    def run(self, task: Callable[..., object], *arguments: Any) -> None:
        bare = [_bare(argument) for argument in arguments]
        self._give(partial(self._begin, task, bare) if self.streams.is_long(self.name) else lambda: task(*bare))

    def record(self) -> _HostEvent:
        return _HostEvent(self, self.given)

    def wait(self, event: Event) -> None:
        assert isinstance(event, _HostEvent)
        self._give(event)

    def keep(self, tensor: Tensor) -> None:
        self.streams.users[tensor.untyped_storage().data_ptr()].append(self)

    def _give(self, what: Callable[[], object] | _HostEvent) -> None:
        self.given += 1
        self.queue.append((self.streams.number(), what))
        self.streams.given()

    def ready(self) -> bool:
        """Return whether the first in the queue can run, or end."""
        if self.ending or not self.queue:
            return self.ending is not None
        what = self.queue[0][1]
        return not isinstance(what, _HostEvent) or what.stream.done >= what.place

    def lingers(self) -> bool:
        """Return whether a task has begun that can take as long as it likes: no other one is behind it."""
        return self.ending is not None and (len(self.queue) == 1 or isinstance(self.queue[1][1], _HostEvent))

    def advance(self) -> None:
        """Run the first in the queue, or as much of it as runs before it writes."""
        number, what = self.queue[0]
        if self.ending:
            self.ending()
            self.ending = None
        elif not isinstance(what, _HostEvent):
            what()
        if self.ending:
            return
        self.queue.popleft()
        if not isinstance(what, _HostEvent):
            self.streams.finished.append((number, self.name))
        self.done += 1

    def _begin(self, task: Callable[..., object], arguments: list[Any]) -> None:
        """Run a task, and take back what it wrote to its arguments until it ends."""
        before = [(one, one.clone()) for one in _tensors(arguments)]
        task(*arguments)
        writes = [(_bytes(one), _bytes(one).clone(), _bytes(one) != _bytes(old)) for one, old in before]
        for one, old in before:
            one.copy_(old)
        self.ending = lambda: [one.copy_(torch.where(changed, new, one)) for one, new, changed in writes]

    def _let_go(self, block: Tensor) -> None:
        users = self.streams.users.pop(block.untyped_storage().data_ptr(), [])
        self.leaving.append((block, [user.record() for user in users if user is not self]))

    def _take_back(self) -> None:
        held = []
        for block, events in self.leaving:
            if all(event.stream.done >= event.place for event in events):
                self.free[block.numel()].append(block)
            else:
                held.append((block, events))
        self.leaving = held


def _bare(argument: Any) -> Any:
    """Return other tensors over the same memory: a queued task holds no memory against the pool."""
    if isinstance(argument, Tensor):
        return argument.detach()
    if isinstance(argument, dict):
        return {name: _bare(one) for name, one in argument.items()}
    return argument


def _tensors(arguments: list[Any]) -> list[Tensor]:
    """Return the tensors among arguments, and in maps."""
    every = [one for argument in arguments for one in (argument.values() if isinstance(argument, dict) else [argument])]
    return [one for one in every if isinstance(one, Tensor)]


def _bytes(one: Tensor) -> Tensor:
    return one.reshape(-1).view(torch.uint8)


class _HostStreams:
    def __init__(self, device: str, slow: str, chance: random.Random) -> None:
        self.device, self._slow, self._chance = device, slow, chance
        self.every: dict[str, _HostStream] = {}
        self.finished: list[tuple[int, str]] = []
        self.users: dict[int, list[_HostStream]] = defaultdict(list)
        """Streams that said that they use memory, by its address."""
        self._numbers = 0

    def stream(self, name: str) -> Stream:
        return self.every.setdefault(name, _HostStream(name, self))

    def number(self) -> int:
        """Return the number of the next task."""
        self._numbers += 1
        return self._numbers

    def is_long(self, name: str) -> bool:
        """Return whether tasks of this stream take long."""
        return self._slow == LONG and name != COMPUTE

    def given(self) -> None:
        """Move on as far as a fast device does, or a random way."""
        while self._slow == _EAGER or (self._slow == _RANDOM and self._chance.random() < 0.5):
            if not self._advance():
                break

    def synchronize(self) -> None:
        while self._advance():
            pass
        if stuck := [name for name, stream in self.every.items() if stream.queue]:
            raise RuntimeError(f"streams wait for each other: {', '.join(stuck)}")

    def ahead(self) -> frozenset[str]:
        return _overtaking(self.finished)

    def _advance(self) -> bool:
        ready = [stream for stream in self.every.values() if stream.ready()]
        if self._slow == _RANDOM:
            self._chance.shuffle(ready)
        slow = COMPUTE if self._slow == LONG else self._slow
        ready.sort(key=lambda stream: (stream.lingers(), stream.name == slow))
        if ready:
            ready[0].advance()
        return bool(ready)


class _CudaStreams:
    def __init__(self, device: str, slow: str, chance: random.Random) -> None:
        self.device, self._slow, self._chance = device, slow, chance
        self._every: dict[str, _CudaStream] = {}
        self.ends: list[tuple[torch.cuda.Event, int, str]] = []
        self.start = torch.cuda.Event(enable_timing=True)
        self.start.record()

    def stream(self, name: str) -> Stream:
        if name not in self._every:
            mine = torch.cuda.current_stream(self.device) if name == COMPUTE else torch.cuda.Stream(self.device)
            self._every[name] = _CudaStream(name, self, mine)
        return self._every[name]

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def ahead(self) -> frozenset[str]:
        self.synchronize()
        ends = sorted(self.ends, key=lambda end: self.start.elapsed_time(end[0]))
        return _overtaking([(number, name) for _, number, name in ends])

    def sleeps(self, name: str) -> bool:
        """Return whether a stream sleeps before its next task."""
        return name == self._slow or (self._slow == _RANDOM and self._chance.random() < 0.2)


@dataclass(frozen=True)
class _CudaStream:
    name: str
    streams: _CudaStreams
    mine: torch.cuda.Stream

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        with torch.cuda.stream(self.mine):
            return torch.empty(shape, dtype=dtype, device=self.streams.device)

    def run(self, task: Callable[..., object], *arguments: Any) -> None:
        with torch.cuda.stream(self.mine):
            if self.streams.sleeps(self.name):
                torch.cuda._sleep(_CYCLES)
            task(*arguments)
            end = torch.cuda.Event(enable_timing=True)
            end.record(self.mine)
        self.streams.ends.append((end, len(self.streams.ends), self.name))

    def record(self) -> torch.cuda.Event:
        return self.mine.record_event()

    def wait(self, event: Event) -> None:
        assert isinstance(event, torch.cuda.Event)
        self.mine.wait_event(event)

    def keep(self, tensor: Tensor) -> None:
        tensor.record_stream(self.mine)
