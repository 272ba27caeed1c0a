"""What the worker asks of torch and numpy, where they were imported: seeds, threads, the allocator's peak."""

from __future__ import annotations

import random
import sys
from typing import Any

__all__ = ["allocator_peak_bytes", "cuda_was_initialised", "prepare"]


def _imported(name: str) -> Any:
    return sys.modules.get(name)


def prepare(seed: int, threads: int) -> None:
    """Seed every generator and bound the CPU threads of this process."""
    random.seed(seed)
    if numpy := _imported("numpy"):
        numpy.random.seed(seed % 2**32)
    if torch := _imported("torch"):
        torch.set_num_threads(threads)
        torch.manual_seed(seed)


def cuda_was_initialised() -> bool:
    """Whether this process holds a CUDA context, which no fork of it could use."""
    torch = _imported("torch")
    return bool(torch and torch.cuda.is_initialized())


def allocator_peak_bytes() -> int | None:
    """The peak of torch's caching allocator over every visible GPU in bytes.

    0 where CUDA was never initialised, None without torch.
    """
    torch = _imported("torch")
    if torch is None:
        return None
    if not torch.cuda.is_initialized():
        return 0
    return sum(int(torch.cuda.max_memory_allocated(index)) for index in range(torch.cuda.device_count()))
