"""Subjects that do not go on where they were: one known defect each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from falsifiers.distill.mutants.saving import Saver
from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.checkpointing import Checkpointer
from falsifiers.distill.reference.export import checkpoint_path, checkpoint_steps

__all__ = [
    "DataFromStart",
    "HalfPrecisionState",
    "NoPeriodicSaves",
    "OptimizerForgotten",
    "RandomNumbersForgotten",
    "RepeatsAStep",
    "ResumesFromOldest",
    "ResumesFromScratch",
    "ScheduleFromStart",
    "WritesInPlace",
]


class NoPeriodicSaves(Saver):
    """Nothing is saved before the end (the 25-hour run of SPEC-DISTILL-001, before PR #1856)."""

    class Saving(Checkpointer):
        """Never due."""

        def due(self, step: int) -> bool:
            """No."""
            return False


class WritesInPlace(Saver):
    """A checkpoint is written under its final name, and is there half when the process dies."""

    class Saving(Checkpointer):
        """Writes without a detour."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(save(dict(self._copy.tensors()), dict(metadata)))
            self.saved.append(path)


class OptimizerForgotten(Distillation):
    """The weights are restored; AdamW begins with empty moments."""

    def resume(self) -> int:
        """Forget the moments."""
        step = super().resume()
        self.optimizer.state.clear()
        return step


class RandomNumbersForgotten(Distillation):
    """The generators start as at the first step, so that dropout repeats what it dropped then."""

    def resume(self) -> int:
        """Seed again."""
        step = super().resume()
        torch.manual_seed(2 * self.seed + 1)
        return step


class _CountsAnew(Distillation):
    """Something is counted from where the process began, not from where the run did."""

    resumed_at = 0

    def resume(self) -> int:
        """Remember where this process began."""
        self.resumed_at = super().resume()
        return self.resumed_at


class DataFromStart(_CountsAnew):
    """The position in the data is lost: after a crash the first batches come again."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Batches since the process began."""
        return super().batch(step - self.resumed_at)


class ScheduleFromStart(_CountsAnew):
    """The schedule is lost: after a crash the learning rate warms up once more."""

    def learning_rate(self, step: int) -> float:
        """The rate of the steps since the process began."""
        return super().learning_rate(step - self.resumed_at)


class RepeatsAStep(Distillation):
    """The step of the checkpoint is made once more: it was saved after that step and counts as saved before it."""

    def resume(self) -> int:
        """One step back."""
        self.steps_made = max(0, super().resume() - 1)
        return self.steps_made


class ResumesFromScratch(Distillation):
    """Checkpoints are written and never looked for."""

    def resume(self) -> int:
        """Begin again."""
        return 0


class ResumesFromOldest(Distillation):
    """The first checkpoint that the directory lists is taken for the newest."""

    def resume(self) -> int:
        """Hide the others."""
        for step in checkpoint_steps(self.directory)[1:]:
            checkpoint_path(self.directory, step).unlink()
        return super().resume()


class HalfPrecisionState(Saver):
    """AdamW's moments are saved in bfloat16, to save space."""

    class Saving(Checkpointer):
        """Rounds."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """Half the bytes of every moment."""
            rounded = {name: one.bfloat16() if "/exp_avg" in name else one for name, one in tensors.items()}
            super().save(step, rounded, metadata)
