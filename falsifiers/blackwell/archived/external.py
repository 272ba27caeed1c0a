"""An external engine for F-BLACKWELL-ARCHIVE-001: run as a command, or recorded in the directory of a finished run.

Visible from outside are its files, its output, the driver's compute cache, and how it ends. It is no subject for the
other claims of this spec.
"""

import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from falsifiers.blackwell.archived.code_census import Look
from falsifiers.blackwell.archived.outside_engine import OnStep
from falsifiers.blackwell.watching.compilations import CACHE_VARIABLES, NO_JIT, see_that_ptx_is_refused
from harness import NotMeasured, NotObserved, propagates
from harness.authoring.device_watch import DeviceWatch
from harness.tools.inspect.device_code import Inspection, inspect
from harness.tools.trainer import directory
from harness.tools.trainer.adapter import CommandRun, Outside, RecordedRun
from harness.tools.trainer.command_line import OutOfMemory

_MOST_FILES = 10_000
_MOST_TOLD = 1000
"""Largest number of files of a compute cache in a bundle. One file is enough for a violation."""


class _Engine(Outside):
    """The parts common to a command and a recorded run."""

    def device_code(self) -> Look:
        """Inspect the files that hold its kernels.

        Raises:
            NotObserved: a named file is missing or cannot be read.
        """
        inspections = tuple(self._looked_into(path) for path in dict.fromkeys(self._code_files()))
        named = self.trainer.device_code
        return Look(inspections, bool(named.files), named.kernels, self.trainer.path.name)

    def _looked_into(self, path: Path) -> Inspection:
        try:
            print("looking for device code in", path, "sha256", directory.digest(path))
            return inspect(path)
        except OSError as error:
            raise NotObserved(f"{path}, a file with its device code, cannot be read: {error.strerror}") from error
        except NotMeasured as error:  # a missing digest must not keep the engine from running
            raise NotObserved(str(error)) from error

    def _code_files(self) -> Iterator[Path]:
        for text in self.trainer.device_code.files:
            entry = self.filled(text)
            candidates = [self._program(entry)] if os.sep not in entry else sorted(map(Path, glob.glob(entry)))
            files = [path.resolve() for path in candidates[:_MOST_FILES] if path is not None and path.is_file()]
            if not files:
                raise NotObserved(f"{self.trainer.path.name}, /device_code/files: no file {entry}")
            yield from files

    def _program(self, name: str) -> Path | None:
        """The path of a program that is named without a folder; None if there is none."""
        raise NotImplementedError


class Command(_Engine, CommandRun):
    """An engine that the harness runs."""

    def train(self, on_step: OnStep) -> bool:
        """Run the command to its end.

        Raises:
            CommandFailed: the command failed, or printed that it ran out of GPU memory, whatever its exit status.
            NotMeasured: it could not be started, or the machine interfered.
        """
        for name in CACHE_VARIABLES:
            if name in self.trainer.environment:
                raise NotMeasured(
                    f"{self.trainer.path}: /command/environment/{name}: the claim sets this variable; remove it"
                )
        telling = self.listen(on_step)
        if telling.out_of_memory:
            raise OutOfMemory(f"{self.trainer.name} ended with status 0 but printed: {telling.out_of_memory}")
        return True

    def device_watch(self) -> DeviceWatch | None:
        """A watch of the GPU, if the trial has one."""
        return DeviceWatch() if self.setting.device.startswith("cuda") else None

    @propagates
    def cache_files(self, computed: Path, watch: DeviceWatch | None, completed: bool) -> list[str]:
        """The files in the compute cache. The driver compiled each of them, whatever the output says.

        An empty cache shows that nothing was compiled only if the driver would have refused or cached a compilation.
        """
        if paths := _files(computed):
            return paths
        if not completed:
            raise NotObserved("the run did not complete, so an empty compute cache shows nothing")
        if watch is None:
            raise NotObserved("the run had no GPU, so there was no driver that could compile")
        if not watch.was_used:
            raise NotObserved(watch.reason or "none of its processes was seen on the GPU")
        if self.trainer.variables(self.values).get(NO_JIT, "1") != "1":
            raise NotObserved("its driver was allowed to compile, and need not cache the result")
        see_that_ptx_is_refused()
        return []

    def _code_files(self) -> Iterator[Path]:
        if self.trainer.device_code.files:
            yield from super()._code_files()
            return
        program = self._program(self.trainer.words(self.values)[0])
        if program is not None and program.is_file():
            yield program.resolve()

    def _program(self, name: str) -> Path | None:
        program = shutil.which(name, path=self.trainer.variables(self.values).get("PATH"))
        return None if program is None else Path(program)


class Recorded(_Engine, RecordedRun):
    """A finished run, in the directory that the parameter `dir` names."""

    def train(self, on_step: OnStep) -> bool:
        """Read the logs to their end; see `RecordedRun.listen`. False if there is no log."""
        if self.no_logs():
            return False
        self.listen(on_step)
        return True

    def device_watch(self) -> None:
        """None; nothing runs now."""

    @propagates
    def cache_files(self, computed: Path, watch: DeviceWatch | None, completed: bool) -> list[str]:
        """The files in the compute cache of the run, if it was kept. An empty cache shows nothing."""
        text = self.trainer.files.compute_cache
        folder = Path(self.filled(text)) if text else None
        if folder is None or not folder.is_dir():
            raise NotObserved("the compute cache of the run was not kept (/files/compute_cache)")
        if paths := _files(folder):
            return paths
        raise NotObserved(f"{folder} is empty, and there is no proof that the run used it")

    def _program(self, name: str) -> Path | None:
        """Raises NotObserved: a program on the present PATH need not be the one that ran."""
        raise NotObserved(f"the program that ran is unknown; name its file: -P {name}=/path/to/{name}")


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())[:_MOST_TOLD]
