"""Access to torch and numpy, if they are imported: seeds, threads, peak memory of the allocator."""

from __future__ import annotations

import random
import sys
from typing import Any

__all__ = ["allocator_peak_bytes", "cuda_is_spoilt", "gpu_bytes_left", "is_gpu_out_of_memory", "prepare"]


_peaks = [0]
"""The largest peak of the allocator before any reset, in bytes."""


def _imported(name: str) -> Any:
    return sys.modules.get(name)


def prepare(seed: int, threads: int) -> None:
    """Seed every random generator and limit the CPU threads of this process."""
    random.seed(seed)
    if numpy := _imported("numpy"):
        numpy.random.seed(seed % 2**32)
    if torch := _imported("torch"):
        torch.set_num_threads(threads)
        torch.manual_seed(seed)
        _remember_peaks(torch)


def cuda_is_spoilt() -> bool:
    """Whether CUDA was used before this process was forked, even if only to count GPUs."""
    torch = _imported("torch")
    is_in_bad_fork = getattr(getattr(torch, "cuda", None), "_is_in_bad_fork", None)
    return bool(is_in_bad_fork and is_in_bad_fork())


def gpu_bytes_left() -> int | None:
    """Return free bytes of the current GPU plus those that the caching allocator holds; None without CUDA."""
    torch = _imported("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.mem_get_info()[0]) + int(torch.cuda.memory_reserved())


def is_gpu_out_of_memory(error: BaseException) -> bool:
    """Whether an exception is torch's error for exhausted GPU memory."""
    torch = _imported("torch")
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def allocator_peak_bytes() -> int | None:
    """Return the peak of torch's caching allocator, summed over all visible GPUs, in bytes.

    Resets by the code under test have no effect. 0 if CUDA was never initialized; None without torch.
    """
    torch = _imported("torch")
    if torch is None:
        return None
    if not torch.cuda.is_initialized():
        return 0
    return max(_peak(torch), *_peaks)


def _remember_peaks(torch: Any) -> None:
    """Wrap torch's functions that reset the peak, so that the peak before each reset is kept."""
    reset = torch.cuda.reset_peak_memory_stats

    def noting(*arguments: Any, **keywords: Any) -> None:
        if torch.cuda.is_initialized():
            _peaks[0] = max(_peaks[0], _peak(torch))
        reset(*arguments, **keywords)

    torch.cuda.reset_peak_memory_stats = torch.cuda.memory.reset_peak_memory_stats = noting


def _peak(torch: Any) -> int:
    return sum(int(torch.cuda.max_memory_allocated(index)) for index in range(torch.cuda.device_count()))
