"""Somebody else's trainer as a distillation: run as a command, or over already and read from its directory.

From outside one sees the steps and losses that it prints, the files that it writes, and how it ends. Its weights are
those of its checkpoints, and of its initial file before the first step. Whatever else a falsifier wants is `NotShown`,
never made up: a claim that needs it is NOT_MEASURED, and what can be measured all the same is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor

from falsifiers.distill.inspection import Unreadable
from falsifiers.distill.subject import OnStep, Run
from falsifiers.distill.weights import read_weights
from harness import NotShown, Setting
from harness.external import command, directory
from harness.external.log import EventKind
from harness.external.run import Telling
from harness.external.trainer import Trainer, load

__all__ = ["Command", "Recorded"]

_DTYPES = {
    "f32": "float32",
    "fp32": "float32",
    "f16": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
}


class _Trainer:
    """What running a trainer and reading what it left have in common."""

    is_elsewhere = True
    is_over = False
    directory: Path
    """Where its checkpoints and its export are."""

    def __init__(self, setting: Setting, output: Path) -> None:
        """Read the trainer's file, which the parameter `trainer` names from the project's root."""
        self.trainer: Trainer = load(Path(setting.parameters["trainer"]).absolute())
        self.directory = output
        self._setting = setting
        self._values = {
            **setting.parameters,
            "output": str(output),
            "seed": setting.seed,
            "device": setting.device.partition(":")[0],
            "here": str(self.trainer.path.parent),
            "python": sys.executable,
        }
        self._telling: Telling | None = None
        self._step = 0

    def __getattr__(self, name: str) -> NoReturn:
        """Whatever else a claim wants of a subject; names with an underscore are Python's own questions."""
        if name.startswith("_") or "trainer" not in vars(self):
            raise AttributeError(name)
        raise NotShown(f"{self.trainer.name} shows nothing of its {name.replace('_', ' ')} from outside")

    @property
    def tells_of_checkpoints(self) -> bool:
        """Whether its output names the checkpoints that it writes."""
        return any(rule.kind is EventKind.CHECKPOINT for rule in self.trainer.lines)

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """Nobody sees them from outside."""
        raise NotShown(f"{self.trainer.name} shows no logits of its teacher from outside")

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Nobody sees them from outside."""
        raise NotShown(f"{self.trainer.name} shows no logits of its student from outside")

    def student_weights(self) -> Mapping[str, Tensor]:
        """Before the first step those of the initial file, after step k those of the checkpoint of step k."""
        files = self.trainer.files
        if self._step == 0:
            if not files.initial or not self.trainer.has_values(files.initial, self._values):
                raise NotShown(f"{self.trainer.path.name} names no file with the student before its first step")
            return self._weights(Path(self._filled(files.initial)), files.initial_prefix)
        path = directory.checkpoints(self.trainer, self._values).get(self._step)
        if path is None:
            last = f"step {self._step}" if self._step > 0 else "the last step, which its output does not tell"
            raise NotShown(f"{self.trainer.name} left no checkpoint of {last}")
        return self._weights(path, files.prefix)

    def read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The student's tensors in a checkpoint, and its metadata; Unreadable where it does not parse."""
        return read_weights(path, self.trainer.files.prefix)

    def read_export(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The student's tensors in the export, and its metadata; Unreadable where it does not parse."""
        return read_weights(path, self.trainer.files.export_prefix)

    def ran(self) -> dict[str, Any]:
        """What ran, as far as the output says: device, dtype, backend, and how many steps."""
        if self._telling is None:
            return {}
        found: dict[str, Any] = {name: value.lower() for name, value in self._telling.ran.items()}
        if "device" in found:
            found["device"] = "cuda" if found["device"].startswith(("cuda", "gpu")) else found["device"]
        if "dtype" in found:
            dtype = found["dtype"].removeprefix("torch.")
            found["dtype"] = _DTYPES.get(dtype, dtype)
        if self._telling.made is not None:
            found["steps"] = self._telling.made
        return found

    def _listening(self, on_step: OnStep) -> Telling:
        """Where the output's events go; weights are those of the step that is being told."""

        def hand_on(step: int, values: Mapping[str, float]) -> None:
            self._step = step
            on_step(step, **{name: value for name, value in values.items() if name != "step"})

        self._telling = Telling(hand_on, first=self.trainer.first_step)
        return self._telling

    def _run(self, telling: Telling) -> Run:
        """What the run says about itself."""
        losses = telling.losses
        unseen = telling.unseen
        if not unseen and len(losses) != telling.steps:
            unseen = f"the output tells of {telling.steps} steps and of {len(losses)} losses"
        if not losses:
            losses = [loss for loss in (telling.initial_loss, telling.final_loss) if loss is not None]
        made = telling.made or 0
        self._step = made or -1
        return Run(
            steps=made,
            losses=tuple(losses),
            checkpoints=tuple(self._named(told) for told in telling.checkpoints),
            export=Path(self._filled(self.trainer.files.export)),
            failed_saves=telling.failed_saves,
            unseen=unseen,
        )

    def _named(self, told: str) -> Path:
        """A checkpoint that the output told of, by its path or by its step."""
        if told.isdecimal():
            return directory.checkpoints(self.trainer, self._values).get(int(told[:18]), Path(told))
        return Path(told)

    def _filled(self, text: str) -> str:
        return self.trainer.filled(text, self._values)

    def _weights(self, path: Path, prefix: str) -> Mapping[str, Tensor]:
        try:
            weights, _ = read_weights(path, prefix)
        except Unreadable as error:
            raise NotShown(f"the weights of step {self._step} cannot be read: {error}") from error
        if not weights:
            raise NotShown(f"{path} holds no tensor{f' named {prefix}…' if prefix else ''}")
        return weights


class Command(_Trainer):
    """A trainer that is run."""

    def __init__(self, setting: Setting) -> None:
        """Nothing is started yet."""
        super().__init__(setting, setting.workspace / "output")

    def distill(self, on_step: OnStep) -> Run:
        """Run the command to its end.

        Raises:
            CommandFailed: it failed.
            NotMeasured: it could not be started, or the machine was in the way.
        """
        telling = self._listening(on_step)
        self._setting.workspace.mkdir(parents=True, exist_ok=True)
        command.run(self.trainer, self._values, telling)
        return self._run(telling)


class Recorded(_Trainer):
    """A run that is over, in the directory that the parameter `dir` names. Nothing is run, and nothing is changed."""

    is_over = True

    def __init__(self, setting: Setting) -> None:
        """Nothing is read yet but the trainer's file."""
        super().__init__(setting, Path(setting.parameters["dir"]))

    def distill(self, on_step: OnStep) -> Run:
        """Read the logs to their end.

        Raises:
            CommandFailed: they say that the run failed.
            NotMeasured: one cannot be read.
        """
        telling = self._listening(on_step)
        files = directory.logs(self.trainer, self.directory)
        export = Path(self._filled(self.trainer.files.export))
        for path in (*files, *([export] if export.is_file() else [])):
            print("judging", path, "sha256", directory.digest(path))
        directory.read_logs(self.trainer, files, telling)
        if telling.out_of_memory:
            raise command.OutOfMemory(f"the log says, after step {telling.newest}: {telling.out_of_memory}")
        run = self._run(telling)
        if not files:
            wanted = ", ".join(self.trainer.logs) or "none: its file has no /log/files"
            return replace(run, unseen=f"there is no log in {self.directory}; looked for {wanted}")
        return run
