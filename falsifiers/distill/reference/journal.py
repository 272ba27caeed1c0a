"""The training log: one line of JSON every so many steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

from torch import Tensor

__all__ = ["Journal"]


class Journal:
    """Writes a line for every so many steps; 0 writes none, makes no file, and never asks the GPU for a value.

    Lines are handed to the system one by one, so that they can be followed and survive the process; they are not
    flushed to the disk, which would take longer than a small step.
    """

    def __init__(self, path: Path, every: int) -> None:
        """Write to `path`, after what is there already; the file is made with the first line."""
        self._path, self.every = path, every
        self._file: TextIO | None = None

    def note(self, step: int, loss: Tensor, learning_rate: float) -> None:
        """Write the step's line if one is due. The one value that is fetched from the GPU is the loss."""
        if self.every and step % self.every == 0:
            self.write({"step": step, "loss": loss.item(), "learning_rate": learning_rate})

    def write(self, values: dict[str, float]) -> None:
        """Write one line."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", buffering=1)
        self._file.write(json.dumps(values) + "\n")
