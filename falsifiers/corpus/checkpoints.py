"""Checkpoints and exports that did not hold, or did not give back, what was trained."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save, save_file
from torch import Tensor

from falsifiers.corpus.judged import Switch
from falsifiers.distill.reference.checkpointing import Checkpointer
from falsifiers.distill.reference.state import read_state
from falsifiers.distill.reference.trainer import Distillation
from falsifiers.distill.subject import OnStep, Run

__all__ = [
    "AdapterAsInitialised", "AverageOnResume", "EmptyAdapter", "EpochBoundary", "FirstShardOnly", "HeadWithoutContent",
    "MetadataOnly", "NotAtomic", "OptimizerNotStored", "PrefixOfCompile", "StepCountedBeforeItsBatch",
    "TiedWeightOverwritten", "VocabularyCut",
]  # fmt: skip

_EMBEDDING = "model.embed_tokens.weight"


class _Export(Distillation):
    """Exports something else."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Write what `stored` makes of the weights."""
        path.parent.mkdir(parents=True, exist_ok=True)
        live = {name: weight.detach().clone() for name, weight in self.student_weights().items()}
        save_file(self.stored(live), path, dict(metadata))
        return path

    def stored(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The defect."""
        raise NotImplementedError


class MetadataOnly(_Export):
    """The exported model has 200 bytes: its metadata, and no tensor."""

    def stored(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """None."""
        return {}


class EmptyAdapter(_Export):
    """The weights are partitioned over ranks, and what is stored is the placeholder of each: no element."""

    def stored(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Right names, shape [0]."""
        return {name: torch.empty(0, dtype=weight.dtype) for name, weight in weights.items()}


class AdapterAsInitialised(_Export):
    """What is stored was gathered before the training: the weights as they were drawn."""

    def make_step(self, *given: object) -> Tensor:
        """Gather before the first step."""
        if not hasattr(self, "_first"):
            self._first = {name: weight.detach().clone() for name, weight in self.student_weights().items()}
        return super().make_step(*given)  # type: ignore[arg-type]

    def stored(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Those."""
        return self._first


class FirstShardOnly(_Export):
    """Only rank 0 saves, and what it has is its own shard."""

    def stored(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The first half of the rows."""
        return {name: weight[: (len(weight) + 1) // 2].clone() for name, weight in weights.items()}


class VocabularyCut(_Export):
    """Rows of the embedding beyond the tokenizer's vocabulary are cut."""

    def stored(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Without the last rows."""
        return {**weights, _EMBEDDING: weights[_EMBEDDING][:-4].clone()}


class HeadWithoutContent(Distillation):
    """An index names the tied head, which has no tensor: its entry is empty, and no loader takes the file."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Add an entry without dtype to the header."""
        whole = super().export(path, metadata)
        content = whole.read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + size])
        header["lm_head.weight"] = {"dtype": "", "shape": [], "data_offsets": [0, 0]}
        text = json.dumps(header).encode()
        whole.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
        return whole


class PrefixOfCompile(Distillation):
    """Compiled models prefix every name, and the loader takes the names that it knows: none."""

    @torch.no_grad()
    def load(self, path: Path) -> None:
        """Load without insisting on names."""
        found = {f"_orig_mod.{name}": weight for name, weight in read_state(path).weights.items()}
        self.student.load_state_dict(found, strict=False)


class TiedWeightOverwritten(Distillation):
    """The loader ties weights after loading, from the one that the file does not have."""

    @torch.no_grad()
    def load(self, path: Path) -> None:
        """Load, then tie the embedding to the head as it was drawn."""
        before = self.student.lm_head.weight.detach().clone()
        super().load(path)
        self.student.lm_head.weight.copy_(before)


class OptimizerNotStored(Distillation):
    """Checkpoints hold weights, and neither the optimizer's nor the schedule's state."""

    def resume(self) -> int:
        """Restore what is there."""
        step = super().resume()
        self.optimizer.state.clear()
        return step


class AverageOnResume(Switch, Distillation):
    """A resumed run takes the averaged weights for the raw ones."""

    def update(self, loss: Tensor, step: int) -> None:
        """Step, then average."""
        super().update(loss, step)
        if not hasattr(self, "_average"):
            self._average = {name: weight.detach().clone() for name, weight in self.student_weights().items()}
        for name, weight in self.student_weights().items():
            self._average[name].lerp_(weight.detach(), 0.5)

    def save(self, checkpointer: Checkpointer, step: int, loss: float) -> None:
        """Store the average under the names of the weights."""
        if self.mended:
            super().save(checkpointer, step, loss)
            return
        raw = {name: weight.detach().clone() for name, weight in self.student_weights().items()}
        with torch.no_grad():
            for name, weight in self.student_weights().items():
                weight.copy_(self._average[name])
            super().save(checkpointer, step, loss)
            checkpointer.settle()
            for name, weight in self.student_weights().items():
                weight.copy_(raw[name])


class StepCountedBeforeItsBatch(Distillation):
    """The step is counted before its batch is fetched, so that a resumed run is a step ahead of what it did."""

    def resume(self) -> int:
        """Count once more."""
        step = super().resume()
        if step:
            self.steps_made = step = step + 1
        return step


class EpochBoundary(Distillation):
    """A run that is resumed at the end of an epoch makes no step, and ends as if it had made all."""

    def distill(self, on_step: OnStep) -> Run:
        """Find the loader exhausted."""
        if not self.steps_made:
            return super().distill(on_step)
        path = self.export(self.directory / "model.safetensors", self.metadata(self.steps_made, 0.0))
        return Run(0, (), (), path)


class NotAtomic(Distillation):
    """A checkpoint is written under its own name, and is half there when the process is killed."""

    class Saving(Checkpointer):
        """Writes where it belongs."""

        def _write(self, path: Path, metadata: Mapping[str, str]) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(save(dict(self._copy.tensors()), dict(metadata)))
            self.saved.append(path)

    def save(self, checkpointer: Checkpointer, step: int, loss: float) -> None:
        """Let what writes where it belongs save."""
        checkpointer.__class__ = self.Saving
        super().save(checkpointer, step, loss)
