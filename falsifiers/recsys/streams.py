"""Streams that the falsifier passes to a subject, so that it can slow any of them down.

On a GPU the streams are CUDA streams. A slow one launches a sleeping kernel before each of its tasks.

On a CPU each stream is a queue. The host appends tasks, and a schedule selects the queue whose first task runs next.
Only events order tasks of different queues. A slow queue advances only when no other queue can, so a missing wait shows
on every machine, in every run. If `slow` is "long", which only a CPU supports, the tasks of all streams but COMPUTE
take long: a task reads its inputs as early as possible, but the outputs of a stream's last tasks before a wait appear
only when no other stream can advance.

Memory behaves as in torch's caching allocator: memory that the host frees is reused at once in the stream that
allocated it, although tasks of other streams may still read it, unless `keep` was called.
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
"""The stream of training steps. The subject chooses the names of other streams."""
LONG = "long"
"""Every stream but COMPUTE is slow within its tasks, not before them. Only queues on a CPU can delay a task there."""
_EAGER, _RANDOM = "none", "random"
_CYCLES = 20_000_000
"""Of a sleeping kernel: about 10 ms, longer than the host needs to launch a step."""
_GRAIN = 512
"""Memory is allocated in multiples of this many bytes, as in torch's CUDA allocator."""


class Event(Protocol):
    """A position in a stream."""


class Stream(Protocol):
    """Tasks that run one after another, in parallel to other streams."""

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return uninitialised memory of this stream."""
        ...

    def run(self, task: Callable[..., object], *arguments: Any) -> None:
        """Run `task(*arguments)` after the earlier tasks of this stream.

        Like a kernel, a task keeps no memory alive: pass tensors, or maps of tensors, as arguments, and do not close
        over them.
        """
        ...

    def record(self) -> Event:
        """Return the position after the present tasks of this stream."""
        ...

    def wait(self, event: Event) -> None:
        """Delay later tasks of this stream until an event of another stream is reached."""
        ...

    def keep(self, tensor: Tensor) -> None:
        """Record that this stream uses memory of another one, as `Tensor.record_stream` does."""
        ...


class Streams(Protocol):
    """The streams of one training run."""

    device: str

    def stream(self, name: str) -> Stream:
        """Return the stream of this name, which the first call creates."""
        ...

    def synchronize(self) -> None: ...

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
    """Return the streams with a task that ended before an earlier one of COMPUTE, from task numbers in order of end."""
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
    """Memory that the host freed, and the events before it can be reused."""
    ending: Callable[[], object] | None = None
    """What the started task has yet to write."""

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
        """Return whether the first task of the queue can start, or end."""
        if self.ending or not self.queue:
            return self.ending is not None
        what = self.queue[0][1]
        return not isinstance(what, _HostEvent) or what.stream.done >= what.place

    def lingers(self) -> bool:
        """Return whether a task has started that may take arbitrarily long: no other one is behind it."""
        return self.ending is not None and (len(self.queue) == 1 or isinstance(self.queue[1][1], _HostEvent))

    def advance(self) -> None:
        """Run the first task of the queue, or the part of it before it writes."""
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
        """Run a task, and revert what it wrote to its arguments until it ends."""
        before = [(tensor, tensor.clone()) for tensor in _tensors(arguments)]
        task(*arguments)
        writes = [(_bytes(tensor), _bytes(tensor).clone(), _bytes(tensor) != _bytes(old)) for tensor, old in before]
        for tensor, old in before:
            tensor.copy_(old)
        self.ending = lambda: [tensor.copy_(torch.where(changed, new, tensor)) for tensor, new, changed in writes]

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
    """Return other tensors over the same memory: a queued task must not keep memory from the pool."""
    if isinstance(argument, Tensor):
        return argument.detach()
    if isinstance(argument, dict):
        return {name: _bare(tensor) for name, tensor in argument.items()}
    return argument


def _tensors(arguments: list[Any]) -> list[Tensor]:
    """Return the tensors among arguments, and in maps."""
    every = [
        item for argument in arguments for item in (argument.values() if isinstance(argument, dict) else [argument])
    ]
    return [item for item in every if isinstance(item, Tensor)]


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


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
        """Advance as a fast device does, or at random."""
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
