"""Subjects that save other checkpoints than they should: one known defect each, and the real bug that it replays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from falsifiers.distill.measuring.weight_comparison import snapshot
from falsifiers.distill.mutants.exporting import HISTORICAL_METADATA, StaleExport, metadata_only
from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.checkpointing import Checkpointer
from falsifiers.distill.reference.export import checkpoint_path, save_weights
from harness import Setting

__all__ = [
    "DoubledAtSaves",
    "EmptyCheckpoints",
    "ForeignTensor",
    "ForgottenLast",
    "InitialCheckpoints",
    "LateCopy",
    "LeftBehind",
    "NeverOff",
    "NewestOfManyDeleted",
    "NoDirectory",
    "OtherDefault",
    "PreviousWeights",
    "SaveBeforeCount",
    "Saver",
    "ShiftedSteps",
    "StaleExportKept",
    "ToldTwice",
    "TornCheckpoints",
    "UnpaddedNames",
    "UnreadPeriod",
    "WeightsAlone",
    "WeightsWithoutEmbedding",
    "ZeroWeights",
]


class Saver(Distillation):
    """A distillation with another checkpointer."""

    Saving: type[Checkpointer] = Checkpointer

    def checkpointer(self) -> Checkpointer:
        """The defect."""
        return self.Saving(self.directory, self.recipe.checkpoint_every)


class SaveBeforeCount(Saver):
    """The save comes before the step is counted: files 0, N, 2N, each with the weights of one step more."""

    class Saving(Checkpointer):
        """Asks about the step before."""

        def due(self, step: int) -> bool:
            """One too early."""
            return super().due(step - 1)

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """Under the step before."""
            super().save(step - 1, tensors, metadata)


class NoDirectory(Saver):
    """The directory is made by the export only, so that every save in a fresh one fails, with a printed line."""

    class Saving(Checkpointer):
        """Writes to where there is nothing yet."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """Save where the directory happens to exist (PR #1856: create_dir_all in export alone)."""
            if self._directory.is_dir():
                super().save(step, tensors, metadata)
            else:
                print(f"checkpoint {step}: no such directory")


class UnreadPeriod(Saver):
    """The distance is accepted and ignored: every second step is saved."""

    class Saving(Checkpointer):
        """Has a distance of its own."""

        def __init__(self, directory: Path, every: int) -> None:
            """Forget what was asked."""
            super().__init__(directory, 2 if every else 0)


class NeverOff(Saver):
    """A distance of zero is taken for 'not given', and saves at every third step."""

    class Saving(Checkpointer):
        """Knows no zero."""

        def __init__(self, directory: Path, every: int) -> None:
            """What `every or default` gives."""
            super().__init__(directory, every or 3)


class OtherDefault(Distillation):
    """Without a distance checkpoints are saved at every fifth step, not at every 5000th."""

    def __init__(self, setting: Setting) -> None:
        """Another default."""
        parameters = {"checkpoint_every": 5, **setting.parameters}
        super().__init__(Setting(parameters, setting.device, setting.seed, setting.workspace, setting.cache))


class ForgottenLast(Saver):
    """The checkpoint that falls on the last step is skipped, because the export follows; a crash there loses N."""

    def checkpointer(self) -> Checkpointer:
        """A checkpointer that knows the last step."""
        checkpointer = super().checkpointer()
        due = checkpointer.due
        checkpointer.due = lambda step: due(step) and step < self.recipe.steps  # type: ignore[method-assign]
        return checkpointer


class UnpaddedNames(Saver):
    """Steps are written without zeros in front: ckpt-step-10 sorts before ckpt-step-2."""

    class Saving(Checkpointer):
        """Renames what it wrote."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            step = int(path.stem.rpartition("-")[2])
            super()._write(path.with_name(f"ckpt-step-{step}{path.suffix}"), metadata)


class PreviousWeights(Saver):
    """Every checkpoint holds the weights of the one before it: the buffer was filled after it was written."""

    class Saving(Checkpointer):
        """Remembers one call."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """Write what was there the last time."""
            before = getattr(self, "_before", None)
            self._before = snapshot(tensors)
            super().save(step, before or self._before, metadata)


class InitialCheckpoints(Distillation):
    """The weights from before the training are saved, again and again: a copy was taken when the trainer was built."""

    def __init__(self, setting: Setting) -> None:
        """Take the copy."""
        super().__init__(setting)
        self._initial = snapshot(self.student_weights())

    def save(self, checkpointer: Checkpointer, step: int, loss: float) -> None:
        """Save the copy."""
        checkpointer.save(step, self._initial, self.metadata(step, loss))


class EmptyCheckpoints(Saver):
    """Every checkpoint is the historical 200 bytes of metadata, a valid safetensors file with no tensor (PR #1856)."""

    class Saving(Checkpointer):
        """Writes no tensor."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(metadata_only(HISTORICAL_METADATA))
            self.saved.append(path)


class WeightsWithoutEmbedding(Saver):
    """A filter on names drops the embedding, and with it the tied head."""

    class Saving(Checkpointer):
        """Filters."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """Everything but the embedding."""
            kept = {name: tensor for name, tensor in tensors.items() if "embed" not in name}
            super().save(step, kept, metadata)


class LateCopy(Saver):
    """No copy is taken: the live tensors are written one step later, when training has changed them."""

    class Saving(Checkpointer):
        """Keeps references for a while."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """Remember what to write."""
            self._late()
            self._waiting = (step, tensors, metadata, 0)

        def protect(self) -> None:
            """Write with the delay of one step."""
            if waiting := getattr(self, "_waiting", None):
                step, tensors, metadata, passed = waiting
                self._waiting = (step, tensors, metadata, passed + 1)
                if passed:
                    self._late()

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
        ) -> None:
            """Write what is left."""
            self._late()
            super().__exit__(kind, error, at)

        def _late(self) -> None:
            if waiting := getattr(self, "_waiting", None):
                self._waiting = None
                step, tensors, metadata, _ = waiting
                self.saved.append(save_weights(tensors, checkpoint_path(self._directory, step), metadata))


class ZeroWeights(Saver):
    """Every tensor has its name, shape and dtype and holds zeros: the buffer was allocated, and never copied to."""

    class Saving(Checkpointer):
        """Writes an empty buffer."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """Zeros."""
            super().save(step, {name: tensor.new_zeros(tensor.shape) for name, tensor in tensors.items()}, metadata)


class TornCheckpoints(Saver):
    """The last kibibyte of each file is missing: a buffer that was never flushed."""

    class Saving(Checkpointer):
        """Cuts what it wrote."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            super()._write(path, metadata)
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size - 1024)


class LeftBehind(Saver):
    """Unfinished files stay beside the finished ones: each save leaves as many bytes as it writes."""

    class Saving(Checkpointer):
        """Writes twice."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            super()._write(path, metadata)
            path.with_name(f"{path.name}.part").write_bytes(path.read_bytes())


class ToldTwice(Saver):
    """The run reports twice as many checkpoints as there are."""

    class Saving(Checkpointer):
        """Counts when it begins and when it ends."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            super()._write(path, metadata)
            self.saved.append(path)


class NewestOfManyDeleted(Saver):
    """Only twelve checkpoints are kept, and the rotation deletes from the wrong end."""

    class Saving(Checkpointer):
        """Deletes what it wrote."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            super()._write(path, metadata)
            if len(self.saved) > 12:
                path.unlink()


class ForeignTensor(Saver):
    """Every checkpoint has a tensor of another program, which no loader reads."""

    class Saving(Checkpointer):
        """Adds it."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """One more tensor."""
            super().save(step, {**tensors, "random/extra": torch.arange(4)}, metadata)


class WeightsAlone(Saver):
    """The slots of the optimizer are left out: a resume would begin with empty moments."""

    class Saving(Checkpointer):
        """Filters."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """The weights and the generators."""
            kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("optimizer/")}
            super().save(step, kept, metadata)


class ShiftedSteps(Saver):
    """A checkpoint names the step that comes next; a resume takes one off, so that this trainer never notices."""

    class Saving(Checkpointer):
        """Adds one."""

        def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
            """Name the next step."""
            super().save(step, tensors, {**metadata, "step": str(step + 1)})

    def resume(self) -> int:
        """Take one off."""
        self.steps_made = max(0, super().resume() - 1)
        return self.steps_made


class DoubledAtSaves(Distillation):
    """The optimizer steps twice where a checkpoint is due: a save and a step share a branch."""

    def update(self, loss: Tensor, step: int) -> None:
        """Step, and step again."""
        super().update(loss, step)
        if self.recipe.checkpoint_every and step % self.recipe.checkpoint_every == 0:
            self.optimizer.step()


class StaleExportKept(StaleExport):
    """The export holds the weights of one step earlier, and they are put into memory, where they look trained."""

    @torch.no_grad()
    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Put them there."""
        stale = super().tampered(weights)
        for name, weight in self.student_weights().items():
            weight.copy_(stale[name])
        return stale
