"""The common base class of all specs' adapters: a trainer's file, the run and its output, and the values that ran.

    class Command(CommandRun):
        def train(self, on_step):
            self.listen(on_step)

A spec's `external.py` implements the spec's Protocol with them. Any other attribute of such a subject raises
`NotObserved`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Self

from harness.authoring.external_subject import ExternalSubject
from harness.authoring.faults import NotMeasured, NotObserved
from harness.authoring.reports import Working
from harness.authoring.setting import Setting
from harness.tools.trainer import command_line, directory, tracked_runs
from harness.tools.trainer.model_folder import weight_paths
from harness.tools.trainer.output_summary import Telling
from harness.tools.trainer.trainer_file import Trainer, load

__all__ = ["CommandRun", "Outside", "RecordedRun"]

_DTYPES = {
    "f32": "float32",
    "fp32": "float32",
    "f16": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
}


class Outside(ExternalSubject):
    """A trainer that is observed only from outside."""

    shows_device: bool
    """Whether the device is known from another source than the output."""

    directory: Path
    """The folder of its files."""

    def __init__(self, setting: Setting, output: Path) -> None:
        """Read the trainer's file, which the parameter `trainer` names from the project's root."""
        self.trainer: Trainer = load(Path(setting.parameters["trainer"]).absolute())
        self.directory = output
        self.setting = setting
        self.values: dict[str, Any] = {
            "device": setting.device.partition(":")[0],
            **setting.parameters,
            "output": str(output),
            "seed": setting.seed,
            "here": str(self.trainer.path.parent),
            "python": sys.executable,
        }
        self.witness: Outside | None = None
        """Another run of as many steps that was asked for a checkpoint of each."""
        self.telling: Telling | None = None
        """The output of the run so far; None before `listen`."""
        self.runs = itertools.count(1)
        """Numbers the runs of this trainer in its trial."""
        self.step = 0
        """The newest step in the output, counted from 1."""

    def __getattr__(self, name: str) -> NoReturn:
        """Any other attribute raises `NotObserved`, except names with an underscore, which Python itself looks up."""
        if name.startswith("_") or "trainer" not in vars(self):
            raise AttributeError(name)
        raise NotObserved(f"{self.trainer.name} shows nothing of its {name.replace('_', ' ')} from outside")

    def unheard(self) -> str:
        """See `ExternalSubject`: no line matches any event of the trainer's file."""
        if self.telling is None or not self.telling.is_unheard:
            return ""
        return f"no line of its output matches any event of {self.trainer.path.name}; see harness trainer check"

    def ran(self) -> dict[str, Any]:
        """What ran, by the output, and whether the output contradicts itself.

        A device or a number of steps that equals the requested one, and that only the output states, is omitted: a
        trainer's own output can refute its claim, but cannot prove it.
        """
        if self.telling is None:
            return {}
        stated: dict[str, Any] = {name: value.lower() for name, value in self.telling.ran.items() if name != "target"}
        if "device" in stated:
            stated["device"] = "cuda" if stated["device"].startswith(("cuda", "gpu")) else stated["device"]
        if "dtype" in stated:
            dtype = stated["dtype"].removeprefix("torch.")
            stated["dtype"] = _DTYPES.get(dtype, dtype)
        if self.telling.made is not None:
            stated["steps"] = self.telling.made
        if self.shows_device and self.values["device"] == "cpu":
            stated.setdefault("device", "cpu")  # it sees no GPU
        if not self.shows_device and stated.get("device") == self.values["device"]:
            stated["told_device"] = stated.pop("device")
        requested = self.values.get("steps")
        if self.telling.begins_at_zero and self.telling.newest + 1 == requested:
            stated.pop("steps", None)  # the file may lack `first_step = 0`, so the number may be as requested
        if stated.get("steps") == requested and not self._left_every_step():
            stated.pop("steps", None)
        if (contradiction := self.telling.contradiction) is not None:
            stated["contradiction"] = contradiction
        return stated

    def _left_every_step(self) -> bool:
        """Whether this run or its witness has a checkpoint of each step in the output."""
        left = directory.checkpoints(self.trainer, (self.witness or self).values)
        return bool(left) and set(range(1, (self.telling.made or 0) + 1 if self.telling else 1)) <= left.keys()

    def again(self, setting: Setting) -> Self:
        """Another subject of this kind.

        Raises:
            NotObserved: the setting leaves a parameter out, and the trainer's file has a value of its own for it.
        """
        for name in sorted(self.setting.parameters.keys() - setting.parameters.keys()):
            if self.trainer.parameters.get(name, "") != "":
                raise NotObserved(f"{self.trainer.path.name} always gives {name}, so a run without it cannot be made")
        another: Self = type(self)(setting)  # type: ignore[call-arg]
        another.report, another.runs = self.report, self.runs
        return another

    def logs(self) -> list[Path]:
        """The files with its output."""
        return directory.logs(self.trainer, self.directory)

    def filled(self, text: str) -> str:
        """A text of the trainer's file with the values of this run."""
        return self.trainer.filled(text, self.values)

    def _begin(self, on_step: Callable[..., None]) -> Telling:
        """Return the summary that takes the output's events. Weights belong to the step that is being reported."""

        def hand_on(step: int, values: Any) -> None:
            self.step = step
            on_step(step, **{name: value for name, value in values.items() if name != "step"})

        self.telling = Telling(hand_on, self.trainer.first_step, self.trainer.every)
        return self.telling


class CommandRun(Outside):
    """A trainer that is run."""

    shows_device = True  # it gets only the leased GPU, and NVML reports whether it used that

    def __init__(self, setting: Setting) -> None:
        """Start nothing yet."""
        super().__init__(setting, setting.workspace / "output")
        self.memory_bytes: int | None = None
        """After `listen`: the peak CPU memory of its largest process in bytes; None if it is unknown."""

    def listen(self, on_step: Callable[..., None]) -> Telling:
        """Run the command to its end, and call `on_step` for every step in its output.

        If the output has no event, the steps come from the logs that the command wrote.

        Raises:
            CommandFailed: the command failed.
            NotMeasured: it could not be started, or the machine prevented the run.
        """
        telling = self._begin(on_step)
        self.setting.workspace.mkdir(parents=True, exist_ok=True)
        number = next(self.runs)
        self.memory_bytes = command_line.run(
            self.trainer, self.values, telling, lambda line: self.report(Working(number, line))
        )
        if telling.is_unheard:
            directory.read_logs(self.trainer, self.logs(), telling)
        return telling


class RecordedRun(Outside):
    """A finished run in the directory that the parameter `dir` names. Nothing is run or changed."""

    shows_device = False

    def __init__(self, setting: Setting) -> None:
        """Read nothing yet but the trainer's file."""
        super().__init__(setting, Path(setting.parameters["dir"]))

    def listen(self, on_step: Callable[..., None]) -> Telling:
        """Read the logs to their end, and call `on_step` for every step in them.

        Raises:
            CommandFailed: the logs say that the run failed.
            NotMeasured: a log cannot be read, or the directory holds no run of this trainer.
        """
        telling = self._begin(on_step)
        files = self.logs()
        export = Path(self.filled(self.trainer.files.export))
        if not (files or export.exists() or directory.checkpoints(self.trainer, self.values)):
            sought = ", ".join((*self.trainer.logs, export.name))
            raise NotMeasured(f"{self.directory} holds nothing of a run: no checkpoint, and none of {sought}")
        of_logs = (part for path in files for part in tracked_runs.parts(path))
        for path in (*of_logs, *(part for part in weight_paths(export) if part.is_file())):
            print("judging", path, "sha256", directory.digest(path))
        directory.read_logs(self.trainer, files, telling)
        if telling.out_of_memory:
            raise command_line.OutOfMemory(f"the log says, after step {telling.newest}: {telling.out_of_memory}")
        return telling

    def again(self, setting: Setting) -> NoReturn:
        """Raises:
        NotObserved: always.
        """
        raise NotObserved("a finished run cannot be repeated with other parameters")

    def unheard(self) -> str:
        """See `ExternalSubject`. A run without a log has no output."""
        return super().unheard() if self.logs() else ""

    def no_logs(self) -> str:
        """Why its output is unknown; empty if there is a log."""
        if self.logs():
            return ""
        wanted = ", ".join(self.trainer.logs) or "none: its file has no /log/files"
        return f"there is no log in {self.directory}; looked for {wanted}"
