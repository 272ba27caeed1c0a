"""The training log: one line of JSON every `every` steps."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Line:
    """A step whose loss is still being copied to the host."""

    step: int
    loss: Tensor
    arrived: torch.cuda.Event | None
    learning_rate: float


class Journal:
    """Writes a line every `every` steps; 0 writes none, creates no file, and fetches nothing from the GPU.

    A step's line is written with the next one, or at the end: its loss is copied to the host while the GPU runs the
    next step. Waiting for it at once would leave the GPU idle until that step is launched, which took 1.4 to 1.9 ms of
    150 on an H200. Each line is passed to the system at once, so it can be followed and survives the process. Lines are
    not flushed to the disk, because that takes longer than a small step.
    """

    def __init__(self, path: Path, every: int) -> None:
        """Append to `path`. The file is created with the first line."""
        self._path, self.every = path, every
        self._file: TextIO | None = None
        self._last: _Line | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Write the last step's line; after an error, which may be the GPU's, only if its loss can be read."""
        with contextlib.suppress(*[RuntimeError] if error else []):
            self._write_last()
        if self._file is not None:
            self._file.close()
            self._file = None

    def note(self, step: int, loss: Tensor, learning_rate: float) -> None:
        """Record a step if a line is due. The loss is the only value that is fetched from the GPU."""
        if self.every and step % self.every == 0:
            here = loss.detach().to("cpu", non_blocking=True)
            arrived = torch.cuda.Event() if loss.is_cuda else None
            if arrived is not None:
                arrived.record()
            self._write_last()
            self._last = _Line(step, here, arrived, learning_rate)

    def write(self, values: dict[str, float]) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", buffering=1)
        self._file.write(json.dumps(values) + "\n")

    def _write_last(self) -> None:
        line, self._last = self._last, None
        if line is not None:
            if line.arrived is not None:
                line.arrived.synchronize()
            self.write({"step": line.step, "loss": line.loss.item(), "learning_rate": line.learning_rate})
