"""A process group of ranks that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from harness.tools.probe.errors import ProbeError

__all__ = ["simulated_ranks"]


@contextmanager
def simulated_ranks(count: int) -> Iterator[None]:
    """Make this process rank 0 of `count` in torch's fake process group; with a count of 1, of no group.

    Raises:
        ProbeError: this process has a process group already.
    """
    if count == 1:
        yield
        return
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise ProbeError("this process has a process group already; destroy it, or probe in another process")
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    try:
        with _shapes_unseen():
            yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _shapes_unseen() -> Iterator[None]:
    """Let DTensor find the shapes of results in fake tensors of its own, which take no memory on a device."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.utils._python_dispatch import _disable_current_modes

    name = "_propagate_tensor_meta_non_cached"
    propagate = getattr(ShardingPropagator, name)

    def unseen(self: Any, *arguments: Any) -> Any:
        with _disable_current_modes():
            return propagate(self, *arguments)

    with mock.patch.object(ShardingPropagator, name, unseen):
        yield
