"""An engine for the claims of this package: a command that a trainer's file describes, watched at the CUDA driver."""

import glob
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from falsifiers.blackwell.ptx import external
from harness import NotObserved, Setting
from harness.tools.trainer.command_line import CommandFailed

_TRAINER = "trainers/engines/torch_engine.toml"
_MOST_PRODUCTS = 100


class Command(external.Command):
    """An engine that the harness runs. Its driver may compile."""

    may_compile = True

    @property
    def integrated(self) -> bool:
        """Whether the device shares the host's memory, as the driver says; after `prepare`."""
        return self.control.integrated

    def products(self) -> Mapping[str, Mapping[str, Tensor]]:
        """The products that the engine dumped, by file: tensors by name.

        Raises:
            CommandFailed: a file cannot be read.
            NotObserved: it dumped none.
        """
        pattern = self.filled(self.trainer.dumps.files) if self.trainer.dumps.files else ""
        paths = sorted(glob.glob(pattern))[:_MOST_PRODUCTS]
        if not paths:
            raise NotObserved(
                f"it dumped no product: no file fits /dump/files of {self.trainer.path.name}, {pattern!r}"
            )
        try:
            return {Path(path).name: load_file(path) for path in paths}
        except (SafetensorError, OSError) as error:
            raise CommandFailed(f"a dumped product cannot be read: {error}") from error

    def without_library(self) -> Self:
        """Another run of the engine, in which no launch by cuBLAS between cuProfilerStart and -Stop is made."""
        another = type(self)(replace(self.setting, workspace=self.setting.workspace / "without-library"))
        another.setting.workspace.mkdir()
        another.leaves_out_library = True
        return another


class Torch(Command):
    """A loop of PyTorch, for a run without --subject."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(replace(setting, parameters={**setting.parameters, "trainer": _TRAINER}))
