"""Periodic checkpoints that hardly delay training.

A save has two parts. First the tensors are copied to the host; on CUDA, into pinned memory and on a separate stream,
while the next forward and backward pass run. Only the optimizer, which changes the tensors, waits for the copy. Then a
thread writes the copy to the disk. At most one save is in progress: the next one waits until the last is written. So
one copy bounds the memory, and a crash loses fewer steps than two checkpoint intervals, or at most one interval if no
write was in progress.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from falsifiers.distill.reference.export import checkpoint_path, save_weights

_log = logging.getLogger(__name__)


class HostCopy:
    """Copies of tensors in host memory, which is reused."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """Start to copy the tensors. They must not change until `wait` returns on the stream that changes them.

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
                    tensor.record_stream(stream)  # nor may its memory be reused before
            self._copied = torch.cuda.Event()
            self._copied.record(stream)

    def protect(self) -> None:
        """Make the current stream wait until the copy is complete; the host does not wait."""
        if self._copied is not None:
            torch.cuda.current_stream().wait_event(self._copied)

    def tensors(self) -> Mapping[str, Tensor]:
        """The copies. The host waits until they are complete."""
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
    """Saves a training's state in the background; as a context manager, it ends when everything is written.

    Attributes:
        saved: the files that were written, in order.
        failures: the number of failed saves. Each is logged and training continues, because the next one may succeed.
            Errors that are not of the disk are raised.
    """

    def __init__(self, directory: Path, every: int) -> None:
        """Save to `directory` every `every` steps; 0 saves never.

        Raises:
            ValueError: a negative interval.
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
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for the last write. Errors that are not of the disk are raised."""
        self._writer.shutdown(wait=True)
        if error is None:
            self.settle()

    def due(self, step: int) -> bool:
        """Whether the state after this step is to be saved."""
        return self._every > 0 and step % self._every == 0

    def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        """Copy the tensors and write them in the background, after the write in progress."""
        self.settle()
        self._copy.take(tensors)
        self._writing = self._writer.submit(self._write, checkpoint_path(self._directory, step), metadata)

    def protect(self) -> None:
        """Call this before tensors that were given to `save` change."""
        self._copy.protect()

    def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
        try:
            self.saved.append(save_weights(self._copy.tensors(), path, metadata))
        except OSError as error:
            self.failures += 1
            _log.error("checkpoint %s could not be saved, training goes on: %s", path.name, error)

    def settle(self) -> None:
        """Wait until the save in progress is written. Errors that are not of the disk are raised."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None
