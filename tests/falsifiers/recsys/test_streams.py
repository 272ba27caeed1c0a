"""The queues that replace streams on a CPU: order, events, memory, and the stream that sleeps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from falsifiers.recsys.streams import COMPUTE, LONG, Streams, streams_on


def streams(slow: str) -> Streams:
    """Streams on the CPU."""
    return streams_on("cpu", slow, 0)


@pytest.mark.parametrize(
    ("slow", "order"), [("none", "abc"), ("compute", "bca"), ("copy", "acb"), ("gather", "abc"), ("long", "bca")]
)
def test_a_sleeping_stream_comes_last(slow: str, order: str) -> None:
    """The tasks of the sleeping stream run last, whichever was launched first."""
    under, heard = streams(slow), []
    for name, letter in ((COMPUTE, "a"), ("copy", "b"), ("gather", "c")):
        under.stream(name).run(heard.append, letter)
    under.synchronize()
    assert "".join(heard) == order


@pytest.mark.parametrize("slow", ["none", "compute", "copy", "random", "long"])
def test_an_event_orders_streams(slow: str) -> None:
    """A task after a wait does not run before the event, whichever stream sleeps."""
    under, heard = streams(slow), []
    copy, compute = under.stream("copy"), under.stream(COMPUTE)
    for number in range(5):
        copy.run(heard.append, f"copy {number}")
        compute.wait(copy.record())
        compute.run(heard.append, f"step {number}")
    under.synchronize()
    assert all(heard.index(f"copy {number}") < heard.index(f"step {number}") for number in range(5))


@pytest.mark.parametrize(("waits", "left"), [(True, 2.0), (False, 1.0)])
def test_a_long_task_reads_early_and_writes_late(waits: bool, left: float) -> None:
    """A step that does not wait for the task is overwritten with values from before the step."""
    under = streams(LONG)
    gather, compute = under.stream("gather"), under.stream(COMPUTE)
    table, rows = torch.ones(4), gather.empty((4,), torch.float32)
    gather.run(lambda to: to.copy_(table), rows)
    read = gather.record()
    compute.run(table.fill_, 2.0)
    if waits:
        compute.wait(read)
    compute.run(lambda to: to.copy_(table), rows)
    under.synchronize()
    assert rows.tolist() == [left] * 4


def test_no_gpu_has_long_tasks() -> None:
    """Only queues can have a task that is still running."""
    with pytest.raises(ValueError, match="for a CPU"):
        streams_on("cuda", LONG, 0)


def test_streams_that_wait_for_each_other_are_named() -> None:
    """Streams that wait for each other raise an error with their names, instead of a hang."""
    under = streams("compute")
    first, second = under.stream("one"), under.stream("other")
    first.run(int)
    later = first.record()
    second.wait(later)
    mine = second.record()
    under.stream(COMPUTE).wait(mine)
    object.__setattr__(later, "place", 3)
    with pytest.raises(RuntimeError, match="other, compute"):
        under.synchronize()


@pytest.mark.parametrize(("kept", "seen"), [(True, 1.0), (False, 2.0)])
def test_memory_goes_to_the_next_unless_a_stream_keeps_it(kept: bool, seen: float) -> None:
    """The host frees a tensor that a sleeping stream has not read yet."""
    under, read = streams("compute"), []
    copy, compute = under.stream("copy"), under.stream(COMPUTE)
    first = copy.empty((4,), torch.float64)
    copy.run(Tensor.fill_, first, 1.0)
    compute.wait(copy.record())
    compute.run(lambda tensor: read.append(float(tensor[0])), first)
    if kept:
        compute.keep(first)
    del first
    second = copy.empty((4,), torch.float64)
    copy.run(Tensor.fill_, second, 2.0)
    under.synchronize()
    assert read == [seen]


def test_streams_that_overtake_a_step_are_named() -> None:
    """Such streams are named only if steps sleep."""
    for slow, ahead in (("compute", {"copy"}), ("none", set())):
        under = streams(slow)
        under.stream(COMPUTE).run(int)
        for _ in range(2):
            under.stream("copy").run(int)
        under.synchronize()
        assert under.ahead() == ahead
