"""The weight files of a trainer in another process, named and read as its TOML file says."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor

from falsifiers.distill.measuring.weight_comparison import UNFINISHED
from falsifiers.distill.measuring.weight_formats import read_weights
from harness import NotObserved, Unobserved
from harness.tools.trainer import directory
from harness.tools.trainer.adapter import Outside


class OutsideFiles:
    """The files of a trainer, named and read as its TOML file says. See `WeightFiles`."""

    in_memory: bool = Unobserved("the weights in memory after a step are in another process")  # type: ignore[assignment]
    no_metadata: Mapping[str, str] = Unobserved("the export says nothing about itself")  # type: ignore[assignment]

    def __init__(self, subject: Outside) -> None:
        self._trainer = subject.trainer
        self._values = subject.values

    def read_export(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        return read_weights(path, self._trainer.files.export_prefix)

    def read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        return read_weights(path, self._trainer.files.prefix)

    def moving(self, names: Iterable[str]) -> list[str]:
        """The names without the tensors that the TOML file lists as frozen."""
        frozen = self._trainer.files.frozen
        return [name for name in names if frozen is None or frozen.search(name) is None]

    def name(self, step: int) -> str:
        """The TOML file maps file names to steps."""
        return f"step {step}"

    def checkpoints(self, folder: Path) -> dict[Path, str]:
        """The periodic checkpoints in the folder that the TOML file names.

        Raises:
            NotObserved: the TOML file names no checkpoints.
        """
        finished = {path: self.name(step) for step, path in self.by_step().items() if self._is_periodic(step)}
        return finished | {path: path.name for suffix in UNFINISHED for path in self.by_step(suffix).values()}

    def _is_periodic(self, step: int) -> bool:
        """Whether a checkpoint is periodic; the one that each run leaves at its end may not be."""
        every = self._values.get("checkpoint_every")
        return not (self._trainer.files.last and step == self._values.get("steps") and (not every or step % every))

    def by_step(self, suffix: str = "") -> dict[int, Path]:
        """The checkpoints by step; with a suffix, the files whose names have that suffix as well.

        Raises:
            NotObserved: the TOML file names no checkpoints, or its expression finds no step in their names.
        """
        if not self._trainer.files.checkpoints:
            raise NotObserved(f"{self._trainer.path.name} names no checkpoints; say in /files where they are")
        paths = directory.checkpoints(self._trainer, self._values, suffix)
        if not paths and (files := directory.checkpoint_files(self._trainer, self._values, suffix)):
            raise NotObserved(f"/files/step of {self._trainer.path.name} finds no step in {files[0]} or the others")
        return paths
