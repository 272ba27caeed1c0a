"""A simulated process group."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from harness.tools.probe.errors import ProbeError

__all__ = ["simulated_ranks"]


@contextmanager
def simulated_ranks(count: int) -> Iterator[None]:
    """Make this process rank 0 of `count` in torch's fake process group; a count of 1 creates no group.

    A process group that the block initializes is fake too; with a count above 1, it is the existing group.

    Raises:
        ProbeError: this process has a process group already.
    """
    if count == 1 and "torch.distributed" not in sys.modules:
        yield
        return
    import torch.distributed as dist

    if count > 1 and dist.is_initialized():
        raise ProbeError("this process has a process group already; destroy it, or probe in another process")
    with ExitStack() as stack:

        def initialize(*_arguments: Any, rank: int = -1, world_size: int = -1, **_keywords: Any) -> None:
            from torch.testing._internal.distributed.fake_pg import FakeStore

            if dist.is_initialized():
                return
            own, size = max(rank, 0), world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
            begin("fake", store=FakeStore(), rank=own, world_size=size)
            stack.callback(dist.destroy_process_group)
            stack.enter_context(_shapes_unseen())

        begin = dist.init_process_group
        if count > 1:
            initialize(rank=0, world_size=count)
        stack.enter_context(mock.patch.object(dist, "init_process_group", initialize))
        yield


@contextmanager
def _shapes_unseen() -> Iterator[None]:
    """Let DTensor compute the shapes of results with its own fake tensors, which use no device memory."""
    import torch
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.utils._python_dispatch import _disable_current_modes

    from harness.tools.probe.storages import KEYS

    name = "_propagate_tensor_meta_non_cached"
    propagate = getattr(ShardingPropagator, name)

    def unseen(self: Any, *arguments: Any) -> Any:
        with _disable_current_modes(), torch._C._ExcludeDispatchKeyGuard(KEYS):
            return propagate(self, *arguments)

    with mock.patch.object(ShardingPropagator, name, unseen):
        yield
