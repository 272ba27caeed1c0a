"""Periodic checkpoints that training hardly waits for.

A save has two parts. The tensors are copied to the host, on CUDA into pinned memory and on a stream of its own, while
the next forward and backward pass are already computed; only the optimizer, which changes them, waits for the copy. A
thread then writes the copy to the disk. At most one save is under way: one that is due before the last is written
waits for it, so memory is bounded by one copy, and a crash costs less than twice the distance of two checkpoints, or no
more than that distance where nothing was being written.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from falsifiers.distill.reference.export import checkpoint_path, save_weights

__all__ = ["Checkpointer", "HostCopy"]

_log = logging.getLogger(__name__)


class HostCopy:
    """Copies of tensors in host memory that is kept and used again."""

    def __init__(self) -> None:
        """Allocate nothing yet."""
        self._tensors: dict[str, Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """Start to copy the tensors as they are; until `wait` returns on the stream that changes them, they must stay.

        On the CPU the copy is complete when this returns.
        """
        self._tensors = {name: self._room(name, tensor) for name, tensor in tensors.items()}
        on_gpu = next((tensor.device for tensor in tensors.values() if tensor.is_cuda), None)
        if on_gpu is None:
            self._copy(tensors)
            return
        stream = torch.cuda.Stream(on_gpu)
        stream.wait_stream(torch.cuda.current_stream(on_gpu))
        with torch.cuda.stream(stream):
            self._copy(tensors)
            for tensor in tensors.values():
                if tensor.is_cuda:
                    tensor.record_stream(stream)  # nor may its memory be given to another tensor before
            self._copied = torch.cuda.Event()
            self._copied.record(stream)

    def protect(self) -> None:
        """Let what is launched on the current stream from now on wait until the copy is complete; the host goes on."""
        if self._copied is not None:
            torch.cuda.current_stream().wait_event(self._copied)

    def tensors(self) -> Mapping[str, Tensor]:
        """The copies, once they are complete; the host waits for that."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._tensors

    def _room(self, name: str, tensor: Tensor) -> Tensor:
        kept = self._tensors.get(name)
        if kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype:
            return kept
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)

    def _copy(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            self._tensors[name].copy_(tensor.detach(), non_blocking=True)


class Checkpointer:
    """Saves a training's state in the background; used as a context, it ends with everything written.

    Attributes:
        saved: the files that were written, in order.
        failures: how many saves failed. Each is logged; training goes on, because the next one may succeed and the
            weights in memory are worth more than the file. What is no failure of the disk's is raised.
    """

    def __init__(self, directory: Path, every: int) -> None:
        """Save to `directory` at every so many steps; 0 saves never.

        Raises:
            ValueError: a negative distance.
        """
        if every < 0:
            raise ValueError(f"a checkpoint every {every} steps was asked for; say 0 for none")
        self.saved: list[Path] = []
        self.failures = 0
        self._directory, self._every = directory, every
        self._copy = HostCopy()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for the last write; its error, if it is none of the disk's, is raised."""
        self._writer.shutdown(wait=True)
        if error is None:
            self.settle()

    def due(self, step: int) -> bool:
        """Whether the state after this step is to be saved."""
        return self._every > 0 and step % self._every == 0

    def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """Take a copy of the tensors and write it in the background, after the write that may be under way."""
        self.settle()
        self._copy.take(tensors)
        self._writing = self._writer.submit(self._write, checkpoint_path(self._directory, step), metadata)

    def protect(self) -> None:
        """To be called before tensors that were given to `save` are changed."""
        self._copy.protect()

    def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
        try:
            self.saved.append(save_weights(self._copy.tensors(), path, metadata))
        except OSError as error:
            self.failures += 1
            _log.error("checkpoint %s could not be saved, training goes on: %s", path.name, error)

    def settle(self) -> None:
        """Wait until the save that is under way is written; its error, if it is none of the disk's, is raised."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None
