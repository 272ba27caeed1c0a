"""Work done by the ranks of a process group, each in a forked process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

__all__ = ["run_of_ranks"]

R = TypeVar("R")

_FORK = multiprocessing.get_context("fork")
_PATIENCE = timedelta(seconds=60)


def run_of_ranks(ranks: int, work: Callable[[int], R], folder: Path) -> list[R]:
    """What `work(rank)` returns in each rank of a gloo group; with one rank there is no group.

    Forks copy the state of torch, so no subject may have computed in this process on a GPU.

    Args:
        folder: gets the ranks' store and what they return.

    Raises:
        RuntimeError: a rank did not return; its traceback is in the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    processes = [_FORK.Process(target=_live, args=(rank, ranks, work, folder)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = [rank for rank, process in enumerate(processes) if process.exitcode]
    if failed:
        raise RuntimeError(f"of {ranks} ranks, these did not end well: {failed}")
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(ranks)]


def _live(rank: int, ranks: int, work: Callable[[int], R], folder: Path) -> None:
    """The body of a rank's process."""
    torch.set_num_threads(1)
    if ranks > 1:
        store = f"file://{(folder / 'store').resolve()}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks, timeout=_PATIENCE)
    torch.save(work(rank), folder / f"rank-{rank}.pt")
    if ranks > 1:
        dist.destroy_process_group()
