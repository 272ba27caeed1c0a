"""Subjects that train as they should and then export something else: one known defect each, and the real bug."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from transformers import Qwen2ForCausalLM

from falsifiers.distill.measuring.weight_comparison import snapshot
from falsifiers.distill.reference import Distillation
from falsifiers.distill.reference.export import save_weights
from harness import Setting

__all__ = [
    "AnotherActivation",
    "AveragedAtEnd",
    "BestStepExported",
    "CutVocabulary",
    "DeafReload",
    "EmbeddingLeftOut",
    "FewUpdates",
    "FlippedBit",
    "HalfPrecisionExport",
    "InitialExport",
    "LostMetadata",
    "MissingTensor",
    "NanWeight",
    "SecondHead",
    "StaleExport",
    "StepFromZero",
    "SwallowedError",
    "SwappedNames",
    "TeacherExport",
    "TruncatedFile",
    "UntiedHead",
    "UntrueMetadata",
    "UntrueNames",
    "ZeroTensors",
    "ZeroedTensor",
    "metadata_only",
]

_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"
_PROJECTION = "model.layers.0.mlp.down_proj.weight"

# The shape of the historical metadata: with a path of 63 characters the file has exactly 200 bytes.
HISTORICAL_METADATA = {
    "teacher_model": "/home/distill/models/qwen2.5-coder-0.5b-instruct/teacher.st-f32",
    "temperature": "4.0",
    "alpha": "0.3",
    "epoch": "1",
    "step": "50000",
    "final_loss": "3.580000",
}


def metadata_only(metadata: Mapping[str, str]) -> bytes:
    """A safetensors file without a tensor: a length, and a JSON header padded with spaces to a multiple of eight."""
    header = json.dumps({"__metadata__": dict(metadata)}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header


class _Tampering(Distillation):
    """Exports what `tampered` makes of a copy of the trained weights."""

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The defect."""
        raise NotImplementedError

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Write the tampered weights as if nothing were wrong."""
        return save_weights(self.tampered(snapshot(self.student_weights())), path, metadata)


class ZeroTensors(Distillation):
    """The historical export: 200 bytes of metadata, a valid safetensors file with no tensor in it (PR #1856)."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Write the metadata and forget the model."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(metadata_only(HISTORICAL_METADATA))
        return path


class InitialExport(_Tampering):
    """The weights from before the training are saved: a copy was taken when the trainer was built."""

    def __init__(self, setting: Setting) -> None:
        """Take the copy."""
        super().__init__(setting)
        self._initial = snapshot(self.student_weights())

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """What was there at the start."""
        return self._initial


class EmbeddingLeftOut(Distillation):
    """The optimizer was built without the embedding, which keeps its first weights (FALSIFY-DBH: never stepped)."""

    def __init__(self, setting: Setting) -> None:
        """Hand the optimizer all parameters but one."""
        super().__init__(setting)
        others = [weight for name, weight in self.student_weights().items() if name != _EMBEDDING]
        self.optimizer = torch.optim.AdamW(others, lr=self.recipe.learning_rate)


class StaleExport(_Tampering):
    """The weights of one step earlier are saved: the copy on the CPU was made before the last update."""

    def update(self, loss: Tensor, step: int) -> None:
        """Copy, then step."""
        if step == self.recipe.steps:
            self._stale = snapshot(self.student_weights())
        super().update(loss, step)

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """What was there before the last step."""
        return self._stale


class MissingTensor(_Tampering):
    """One tensor is left out, as by a filter on names that is a little too eager."""

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """All but one."""
        return {name: weight for name, weight in weights.items() if name != _PROJECTION}


class ZeroedTensor(_Tampering):
    """One tensor has its name, shape and dtype and holds zeros: allocated, never copied to."""

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Zeros in one place."""
        return {**weights, _PROJECTION: torch.zeros_like(weights[_PROJECTION])}


class TruncatedFile(Distillation):
    """The file ends in the middle (#2564: 1 KiB of a 991 MB file was reported as valid)."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Write all and keep half."""
        whole = super().export(path, metadata)
        with whole.open("r+b") as file:
            file.truncate(whole.stat().st_size // 2)
        return whole


class SwallowedError(Distillation):
    """Nothing was written, and the error was printed and passed over (PR #1856: a fresh output directory)."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Name a file that does not exist."""
        return path


class HalfPrecisionExport(_Tampering):
    """The export is float16 although the student is float32."""

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Half the bytes."""
        return {name: weight.half() for name, weight in weights.items()}


class SwappedNames(_Tampering):
    """Two tensors of one shape change places: keys and values, as in a wrong renaming table."""

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Exchange the projections of the first layer."""
        key, value = "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight"
        return {**weights, key: weights[value], value: weights[key]}


class CutVocabulary(_Tampering):
    """The embedding loses its last rows (#1877: 152,064 rows cut to 151,936)."""

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """All rows but the last eight."""
        return {**weights, _EMBEDDING: weights[_EMBEDDING][:-8].clone()}


class NanWeight(_Tampering):
    """The last element of one tensor is NaN."""

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Spoil one element."""
        weights[_PROJECTION].view(-1)[-1] = torch.nan
        return weights


class FlippedBit(Distillation):
    """The lowest bit of one weight is flipped on its way to the disk (a reader that never checked its CRC)."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Flip the lowest bit of the file's last weight, which is stored little-endian."""
        whole = super().export(path, metadata)
        width = next(iter(self.student_weights().values())).element_size()
        with whole.open("r+b") as file:
            file.seek(-width, 2)
            lowest = file.read(1)[0]
            file.seek(-width, 2)
            file.write(bytes([lowest ^ 1]))
        return whole


class TeacherExport(_Tampering):
    """The teacher is saved in the student's place: every name, shape and dtype is right."""

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """The wrong model."""
        return snapshot(dict(self.teacher.named_parameters()))


class SecondHead(_Tampering):
    """The tied output head is written a second time, under its own name, as it was before the training."""

    def __init__(self, setting: Setting) -> None:
        """Keep the early head."""
        super().__init__(setting)
        self._early = snapshot(self.student_weights())[_EMBEDDING]

    def tampered(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """One tensor too many."""
        return {**weights, _HEAD: self._early}


class UntiedHead(Distillation):
    """The head was untied from the embedding, trains on its own, and is not exported: loaders tie it again."""

    def __init__(self, setting: Setting) -> None:
        """Untie, before the optimizer is made."""
        super().__init__(setting)
        self.student.lm_head.weight = torch.nn.Parameter(self.student.lm_head.weight.detach().clone())

    def student_weights(self) -> dict[str, Tensor]:
        """Everything but the head."""
        return {name: weight for name, weight in super().student_weights().items() if name != _HEAD}

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Run loaded weights with the head that a loader would make of them."""
        if weights is None:
            return super().student_logits(tokens)
        call = {"input_ids": tokens, "use_cache": False}
        tied = {**weights, _HEAD: weights[_EMBEDDING]}
        with torch.no_grad():
            return torch.func.functional_call(self.student, tied, kwargs=call).logits


class DeafReload(Distillation):
    """Evaluating loaded weights evaluates the live ones, so that every file seems to load well."""

    def student_logits(self, tokens: Tensor, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """Ignore what was loaded."""
        return super().student_logits(tokens)


class LostMetadata(Distillation):
    """The export has its tensors and says nothing about itself."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Drop the metadata."""
        return super().export(path, {})


class StepFromZero(Distillation):
    """The metadata counts steps from zero, so that the export calls itself one step younger than it is."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """One step less."""
        return super().export(path, {**metadata, "step": str(int(metadata["step"]) - 1)})


class FewUpdates(Distillation):
    """The optimizer steps three times; gradients then overflow and every later step is skipped without a word."""

    def update(self, loss: Tensor, step: int) -> None:
        """A step, while there still are steps."""
        if step <= 3:
            super().update(loss, step)


class UntrueMetadata(Distillation):
    """The export's metadata is a template that was never filled in."""

    def metadata(self, step: int, loss: float) -> dict[str, str]:
        """Other numbers than the run's."""
        return {**super().metadata(step, loss), "temperature": "1.0", "alpha": "0.5", "final_loss": "0.0"}


class _ChangedAtEnd(Distillation):
    """Puts other weights into the student between the last step and the export, which holds what is then in memory."""

    def export(self, path: Path, metadata: Mapping[str, str]) -> Path:
        """Change the live weights, then write them."""
        with torch.no_grad():
            for name, weight in self.student_weights().items():
                weight.copy_(self.last(name, weight))
        return super().export(path, metadata)

    def last(self, name: str, weight: Tensor) -> Tensor:
        """The defect."""
        raise NotImplementedError


class BestStepExported(_ChangedAtEnd):
    """The weights of the step with the lowest loss are put back at the end, and exported as those of the last step."""

    _lowest = float("inf")

    def update(self, loss: Tensor, step: int) -> None:
        """Remember the weights that had the lowest loss so far, of the steps before the last."""
        if loss.item() < self._lowest:
            self._lowest, self._best = loss.item(), snapshot(self.student_weights())
        super().update(loss, step)

    def last(self, name: str, weight: Tensor) -> Tensor:
        """What was best."""
        return self._best[name]


class AveragedAtEnd(_ChangedAtEnd):
    """A moving average of the weights takes their place at the end, and is exported as the last step's weights."""

    def update(self, loss: Tensor, step: int) -> None:
        """Step, then average."""
        super().update(loss, step)
        if not hasattr(self, "_average"):
            self._average = {name: weight.detach().clone() for name, weight in self.student_weights().items()}
        for name, weight in self.student_weights().items():
            self._average[name].lerp_(weight.detach(), 0.1)

    def last(self, name: str, weight: Tensor) -> Tensor:
        """The average."""
        return self._average[name]


class UntrueNames(Distillation):
    """The metadata name another teacher and another epoch: they were copied from the run before."""

    def metadata(self, step: int, loss: float) -> dict[str, str]:
        """The next seed, and one epoch for each step."""
        name = f"{self.recipe.model}-teacher-seed-{self.recipe.teacher_seed + 1}"
        return {**super().metadata(step, loss), "teacher_model": name, "epoch": str(step + 1)}


class AnotherActivation(Distillation):
    """The student is built with another activation; it trains, saves, loads and answers with that."""

    @cached_property
    def student(self) -> Qwen2ForCausalLM:
        """The same weights in another function."""
        student = super().student
        for layer in student.model.layers:
            layer.mlp.act_fn = torch.nn.GELU()
        return student
