"""Somebody else's engine for F-BLACKWELL-PTX-001: run as a command, or over already and read from its directory.

From outside one sees its files, what it prints, what the driver leaves in the compute cache, and how it ends. To the
other claims of this spec it shows nothing.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from falsifiers.blackwell.ptx.code_census import Look
from falsifiers.blackwell.ptx.outside_engine import OnStep
from falsifiers.blackwell.watching.compilations import CACHE_VARIABLES, NO_JIT
from harness import NotMeasured, NotShown
from harness.external import directory
from harness.external.adapter import CommandRun, Outside, RecordedRun
from harness.external.command import OutOfMemory
from harness.external.run import Telling
from harness.inspect.device_code import Inspection, inspect

__all__ = ["Command", "Recorded"]

_MOST_FILES = 10_000


class _Engine(Outside):
    """What running an engine and reading what it left have in common."""

    def device_code(self) -> Look:
        """Look into the files that hold its kernels; NotShown where one that is named is not there, or not readable."""
        inspections = tuple(self._looked_into(path) for path in dict.fromkeys(self._code_files()))
        named = self.trainer.device_code
        return Look(inspections, bool(named.files), named.kernels, self.trainer.path.name)

    def _looked_into(self, path: Path) -> Inspection:
        try:
            print("looking for device code in", path, "sha256", directory.digest(path))
            return inspect(path)
        except OSError as error:
            raise NotShown(f"{path}, a file with its device code, cannot be read: {error.strerror}") from error
        except NotMeasured as error:  # its digest could not be had, which is no reason not to run the engine
            raise NotShown(str(error)) from error

    def _code_files(self) -> Iterator[Path]:
        for text in self.trainer.device_code.files:
            entry = self.filled(text)
            found = [self._program(entry)] if os.sep not in entry else sorted(map(Path, glob.glob(entry)))
            files = [path.resolve() for path in found[:_MOST_FILES] if path is not None and path.is_file()]
            if not files:
                raise NotShown(f"{self.trainer.path.name}, /device_code/files: there is no file {entry}")
            yield from files

    def _program(self, name: str) -> Path | None:
        """A program that is named without a folder."""
        raise NotImplementedError


class Command(_Engine, CommandRun):
    """An engine that is run."""

    @property
    def may_compile(self) -> bool:
        """Whether its file or the command line lets the driver compile, against what the claim says."""
        return self.trainer.variables(self.values).get(NO_JIT, "1") != "1"

    def train(self, on_step: OnStep) -> Telling:
        """Run the command to its end.

        Raises:
            CommandFailed: it failed, or said that it ran out of the GPU's memory, however it ended.
            NotMeasured: it could not be started, or the machine was in the way.
        """
        for name in CACHE_VARIABLES:
            if name in self.trainer.environment:
                raise NotMeasured(
                    f"{self.trainer.path}: /command/environment/{name}: the claim sets it; remove it there"
                )
        telling = self.listen(on_step)
        if telling.out_of_memory:
            raise OutOfMemory(f"{self.trainer.name} ended well, and had said: {telling.out_of_memory}")
        return telling

    def _code_files(self) -> Iterator[Path]:
        if self.trainer.device_code.files:
            yield from super()._code_files()
            return
        program = self._program(self.trainer.words(self.values)[0])
        if program is not None and program.is_file():
            yield program.resolve()

    def _program(self, name: str) -> Path | None:
        found = shutil.which(name, path=self.trainer.variables(self.values).get("PATH"))
        return None if found is None else Path(found)


class Recorded(_Engine, RecordedRun):
    """A run that is over, in the directory that the parameter `dir` names."""

    may_compile = True
    """Nobody saw its environment."""

    def train(self, on_step: OnStep) -> Telling:
        """Read the logs to their end; see `RecordedRun.listen`."""
        if why := self.no_logs():
            raise NotShown(why)
        return self.listen(on_step)

    def compute_cache(self) -> Path | None:
        """The driver's compute cache of the run, where it was kept."""
        text = self.trainer.files.compute_cache
        folder = Path(self.filled(text)) if text else None
        return folder if folder is not None and folder.is_dir() else None

    def _program(self, name: str) -> Path | None:
        """A name on the PATH here and now is not the program that ran there and then."""
        raise NotShown(f"which program ran is not known: name its file, as in -P {name}=/path/to/{name}")
