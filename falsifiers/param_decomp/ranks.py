"""Runs work in the ranks of a process group, each in a process of its own."""

import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

R = TypeVar("R")

_PATIENCE = timedelta(seconds=60)


def run_of_ranks(ranks: int, work: Callable[[str], R], device: str, folder: Path) -> list[R]:
    """The result of `work(device)` in each rank; with one rank there is no group.

    On the CPU the group's backend is gloo. On GPUs it is NCCL, and each rank has a GPU of its own.

    Args:
        work: gets the rank's device. On GPUs it is pickled, because a process that has used CUDA cannot be forked.
        device: "cpu" or "cuda:0".
        folder: for the ranks' store and their results.

    Raises:
        RuntimeError: a rank did not return; its traceback is in the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn" if device.startswith("cuda") else "fork")
    devices = [f"cuda:{rank}" if device.startswith("cuda") else device for rank in range(ranks)]
    processes = [context.Process(target=_live, args=(rank, devices, work, folder)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    failed = [rank for rank, process in enumerate(processes) if process.exitcode]
    if failed:
        raise RuntimeError(f"of {ranks} ranks, these did not end well: {failed}")
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(ranks)]


def _live(rank: int, devices: list[str], work: Callable[[str], R], folder: Path) -> None:
    """The body of a rank's process."""
    torch.set_num_threads(1)
    backend = "gloo"
    if devices[rank].startswith("cuda"):
        torch.cuda.set_device(devices[rank])
        backend = "nccl"
    if len(devices) > 1:
        store = f"file://{(folder / 'store').resolve()}"
        dist.init_process_group(backend, init_method=store, rank=rank, world_size=len(devices), timeout=_PATIENCE)
    torch.save(work(devices[rank]), folder / f"rank-{rank}.pt")
    if len(devices) > 1:
        dist.destroy_process_group()
