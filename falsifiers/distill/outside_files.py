"""The weight files of a trainer in another process, called and read as its TOML file says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from falsifiers.distill.measuring.weight_comparison import UNFINISHED
from falsifiers.distill.measuring.weight_formats import read_weights
from harness import NotObserved, Unobserved
from harness.tools.trainer import directory
from harness.tools.trainer.adapter import Outside

__all__ = ["OutsideFiles"]


class OutsideFiles:
    """The files of a trainer, called and read as its TOML file says; see `WeightFiles`."""

    in_memory: bool = Unobserved("the weights in memory after a step are in another process")  # type: ignore[assignment]
    no_metadata: Mapping[str, str] = Unobserved("the export says nothing about itself")  # type: ignore[assignment]

    def __init__(self, subject: Outside) -> None:
        self._trainer = subject.trainer
        self._values = subject.values

    def read_export(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """See `WeightFiles`."""
        return read_weights(path, self._trainer.files.export_prefix)

    def read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """See `WeightFiles`."""
        return read_weights(path, self._trainer.files.prefix)

    def moving(self, names: Iterable[str]) -> list[str]:
        """The names without those of tensors that the run leaves as they are, by the TOML file."""
        frozen = self._trainer.files.frozen
        return [name for name in names if frozen is None or frozen.search(name) is None]

    def name(self, step: int) -> str:
        """See `WeightFiles`: the TOML file says which name is that of which step."""
        return f"step {step}"

    def checkpoints(self, folder: Path) -> dict[Path, str]:
        """See `WeightFiles`; the TOML file names the folder too.

        Raises:
            NotObserved: the TOML file names no checkpoints.
        """
        finished = {path: self.name(step) for step, path in self.by_step().items() if self._is_periodic(step)}
        return finished | {path: path.name for suffix in UNFINISHED for path in self.by_step(suffix).values()}

    def _is_periodic(self, step: int) -> bool:
        """Whether a checkpoint is one of those at equal distances, and not the one that each run leaves at its end."""
        every = self._values.get("checkpoint_every")
        return not (self._trainer.files.last and step == self._values.get("steps") and (not every or step % every))

    def by_step(self, suffix: str = "") -> dict[int, Path]:
        """The checkpoints by step; with a suffix, the files that are called so but for it.

        Raises:
            NotObserved: the TOML file names no checkpoints, or finds the step of none.
        """
        if not self._trainer.files.checkpoints:
            raise NotObserved(f"{self._trainer.path.name} names no checkpoints; say in /files where they are")
        found = directory.checkpoints(self._trainer, self._values, suffix)
        if not found and (files := directory.checkpoint_files(self._trainer, self._values, suffix)):
            raise NotObserved(f"/files/step of {self._trainer.path.name} finds no step in {files[0]} or the others")
        return found
