"""Somebody else's trainer as a distillation: run as a command, or over already and read from its directory.

From outside one sees the steps and losses that it prints, the files that it writes, and how it ends. Its weights are
those of its checkpoints, and of its initial file before the first step. Whatever else a falsifier wants is `NotShown`,
never made up: a claim that needs it is NOT_MEASURED, and what can be measured all the same is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from falsifiers.distill.inspection import Unreadable
from falsifiers.distill.subject import OnStep, Run
from falsifiers.distill.weights import read_weights
from harness import NotShown
from harness.external import directory
from harness.external.adapter import CommandRun, Outside, RecordedRun
from harness.external.log import EventKind
from harness.external.run import Telling

__all__ = ["Command", "Recorded"]


class _Trainer(Outside):
    """What running a trainer and reading what it left have in common."""

    @property
    def tells_of_checkpoints(self) -> bool:
        """Whether its output names the checkpoints that it writes."""
        return any(rule.kind is EventKind.CHECKPOINT for rule in self.trainer.lines)

    def checkpoints(self, suffix: str = "") -> dict[int, Path]:
        """The files that the trainer's file calls checkpoints, by step; with a suffix, those called so but for it.

        Raises:
            NotShown: it calls none so.
        """
        if not self.trainer.files.checkpoints:
            raise NotShown(f"{self.trainer.path.name} names no checkpoints; say in /files where they are")
        return directory.checkpoints(self.trainer, self.values, suffix)

    def teacher_logits(self, tokens: Tensor) -> Tensor:
        """Nobody sees them from outside."""
        raise NotShown(f"{self.trainer.name} shows no logits of its teacher from outside")

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Nobody sees them from outside."""
        raise NotShown(f"{self.trainer.name} shows no logits of its student from outside")

    def student_weights(self) -> Mapping[str, Tensor]:
        """Before the first step those of the initial file, after step k those of the checkpoint of step k."""
        files = self.trainer.files
        if self.step == 0:
            if not files.initial or not self.trainer.has_values(files.initial, self.values):
                raise NotShown(f"{self.trainer.path.name} names no file with the student before its first step")
            return self._weights(Path(self.filled(files.initial)), files.initial_prefix)
        path = self.checkpoints().get(self.step)
        if path is None:
            last = f"step {self.step}" if self.step > 0 else "the last step, which its output does not tell"
            raise NotShown(f"{self.trainer.name} left no checkpoint of {last}")
        return self._weights(path, files.prefix)

    def read_checkpoint(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The student's tensors in a checkpoint, and its metadata; Unreadable where it does not parse."""
        return read_weights(path, self.trainer.files.prefix)

    def read_export(self, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The student's tensors in the export, and its metadata; Unreadable where it does not parse."""
        return read_weights(path, self.trainer.files.export_prefix)

    def _run(self, telling: Telling) -> Run:
        """What the run says about itself."""
        losses = telling.losses
        unseen = telling.unseen
        if not unseen and len(losses) != telling.steps:
            unseen = f"the output tells of {telling.steps} steps and of {len(losses)} losses"
        if not losses:
            losses = [loss for loss in (telling.initial_loss, telling.final_loss) if loss is not None]
        made = telling.made or 0
        self.step = made or -1
        return Run(
            steps=made,
            losses=tuple(losses),
            checkpoints=tuple(self._named(told) for told in telling.checkpoints),
            export=Path(self.filled(self.trainer.files.export)),
            failed_saves=telling.failed_saves,
            unseen=unseen,
        )

    def _named(self, told: str) -> Path:
        """A checkpoint that the output told of, by its path or by its step."""
        if told.isdecimal():
            return directory.checkpoints(self.trainer, self.values).get(int(told[:18]), Path(told))
        return Path(told)

    def _weights(self, path: Path, prefix: str) -> Mapping[str, Tensor]:
        try:
            weights, _ = read_weights(path, prefix)
        except Unreadable as error:
            when = " before the run starts" if self.step == 0 else ""
            raise NotShown(f"{path}, the weights of step {self.step}, cannot be read{when}: {error}") from error
        if not weights:
            raise NotShown(f"{path} holds no tensor{f' named {prefix}…' if prefix else ''}")
        return weights


class Command(_Trainer, CommandRun):
    """A trainer that is run."""

    def distill(self, on_step: OnStep) -> Run:
        """Run the command to its end; see `CommandRun.listen`."""
        return self._run(self.listen(on_step))


class Recorded(_Trainer, RecordedRun):
    """A run that is over, in the directory that the parameter `dir` names."""

    def distill(self, on_step: OnStep) -> Run:
        """Read the logs to their end; see `RecordedRun.listen`."""
        run = self._run(self.listen(on_step))
        return replace(run, unseen=self.no_logs()) if self.no_logs() else run
