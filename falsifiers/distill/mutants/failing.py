"""Subjects that take a failed save too lightly or too hard: one known defect each, and the real bug that it replays."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from safetensors.torch import save
from torch import Tensor

from falsifiers.distill.mutants.saving import Saver
from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.checkpointing import Checkpointer
from falsifiers.distill.reference.export import save_weights

__all__ = [
    "BreaksTheMessage",
    "GivesUpSaving",
    "HarmlessExport",
    "KeepsFailedCopy",
    "LeavesUnfinished",
    "LosesErrors",
    "RaisesInTheMiddle",
    "SilentSaves",
    "SkipsStepOfFailure",
    "TornExport",
    "TornOnFailure",
    "UncountedFailures",
]

_log = logging.getLogger(__name__)


class SilentSaves(Saver):
    """A failed save is counted and not reported."""

    class Saving(Checkpointer):
        """Says nothing."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            try:
                self.saved.append(save_weights(self._copy.tensors(), path, metadata))
            except OSError:
                self.failures += 1


class BreaksTheMessage(Saver):
    """A failed save is logged with swapped arguments: the message cannot be formatted, and logging drops it."""

    class Saving(Checkpointer):
        """Gives the name for the message."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            try:
                self.saved.append(save_weights(self._copy.tensors(), path, metadata))
            except OSError as error:
                self.failures += 1
                _log.error(path.name, "checkpoint %s could not be saved: %s", error)


class UncountedFailures(Saver):
    """A failed save is logged (PR #1856: a line on stderr) and forgotten: the run reports none."""

    class Saving(Checkpointer):
        """Does not count."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            super()._write(path, metadata)
            self.failures = 0


class RaisesInTheMiddle(Saver):
    """A failed save ends the run: the weights in memory die for the sake of a file."""

    class Saving(Checkpointer):
        """Lets errors through."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            self.saved.append(save_weights(self._copy.tensors(), path, metadata))


class GivesUpSaving(Saver):
    """After a failure saving is switched off, also where the disk has room again."""

    class Saving(Checkpointer):
        """Tries once."""

        def due(self, step: int) -> bool:
            """Not after a failure."""
            return super().due(step) and not self.failures


class TornOnFailure(Saver):
    """A checkpoint is written under its final name, and what could be written of it stays there."""

    class Saving(Checkpointer):
        """Writes without a detour."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(save(dict(self._copy.tensors()), dict(metadata)))
                self.saved.append(path)
            except OSError as error:
                self.failures += 1
                _log.error("checkpoint %s failed: %s", path.name, error)


class LeavesUnfinished(Saver):
    """A failed save leaves what it had written, under another name, where there was too little room already."""

    class Saving(Checkpointer):
        """Does not clean up."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                beside = path.with_name(f"{path.name}.part")
                beside.write_bytes(save(dict(self._copy.tensors()), dict(metadata)))
                self.saved.append(beside.rename(path))
            except OSError as error:
                self.failures += 1
                _log.error("checkpoint %s failed: %s", path.name, error)


class HarmlessExport(Distillation):
    """An export that fails is logged like a checkpoint that fails, and the run ends with success and no model."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Log and go on."""
        try:
            return super().export(path, metadata)
        except OSError as error:
            _log.error("export %s failed: %s", path.name, error)
            return path


class TornExport(Distillation):
    """The export is written under its final name; where that fails the run fails, and half a model looks whole."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Write without a detour."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(save(self.student_weights(), dict(metadata)))
        return path


class KeepsFailedCopy(Saver):
    """After a failure the copy is kept to be written later, and later it is, under the name of a later step."""

    class Saving(Checkpointer):
        """Takes a new copy only where the last one was written."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """What could not be written yet comes first."""
            self.settle()
            kept = self._copy.tensors() if self.failures and not self.saved else tensors
            super().save(step, {name: tensor.clone() for name, tensor in kept.items()}, metadata)


class LosesErrors(Saver):
    """The last save's thread is waited for, and its error is never asked for."""

    class Saving(Checkpointer):
        """Forgets what was being written."""

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
        ) -> None:
            """Wait only."""
            self._writer.shutdown(wait=True)


class SkipsStepOfFailure(Saver):
    """One `try` holds the save and the next step's update, so that the update is left out where the save failed."""

    _failures = 0

    def checkpointer(self) -> Checkpointer:
        """Remember it."""
        self._saving = super().checkpointer()
        return self._saving

    def update(self, loss: Tensor, step: int) -> None:
        """Only where nothing failed since the last step."""
        self._saving.settle()
        failures, self._failures = self._failures, self._saving.failures
        if self._failures == failures:
            super().update(loss, step)
