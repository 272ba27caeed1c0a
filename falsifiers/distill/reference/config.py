"""The recipe that a profile's parameters state, and the architectures that it may name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

# The shape of Qwen2-0.5B: 494 million parameters.
_QWEN2_05B: Mapping[str, Any] = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": True,
}

ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    # Small enough for fifty steps in a second or two on two CPU cores.
    "qwen2-tiny": {
        "vocab_size": 256,
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "tie_word_embeddings": True,
    },
    "qwen2-0.5b": _QWEN2_05B,
    # Four layers: short steps that still keep a GPU busy, for claims about milliseconds.
    "qwen2-0.5b-4-layers": {**_QWEN2_05B, "num_hidden_layers": 4},
}


@dataclass(frozen=True)
class Recipe:
    """The parameters of a profile that determine the training, without the falsifiers' own parameters.

    Attributes:
        model: a name in `ARCHITECTURES`, for teacher and student.
        steps: optimizer steps of the student.
        batch: sequences per step.
        sequence: tokens per sequence.
        learning_rate: of AdamW, after the warm-up.
        warmup_steps: steps over which the learning rate rises linearly to its value; 0 for none.
        gradient_norm: the Euclidean norm to which larger gradients are clipped; None for no clipping.
        alpha: weight of the cross entropy; the divergence from the teacher has weight `1 - alpha`.
        temperature: divides both models' logits in the divergence.
        dtype: torch's name of the parameters' dtype.
        teacher_steps, teacher_batch, teacher_learning_rate, teacher_seed: how the teacher is trained.
        checkpoint_every: steps between checkpoints; 0 for none. The default is SPEC-DISTILL-001's (PR #1856).
        dropout: of the student's attention, in training.
        log_every: steps between lines of the training log; 0 for none.
        export: the name of the exported file; its suffix says the format.
    """

    model: str
    steps: int
    batch: int
    sequence: int
    learning_rate: float
    warmup_steps: int
    gradient_norm: float | None
    alpha: float
    temperature: float
    dtype: str
    teacher_steps: int
    teacher_batch: int
    teacher_learning_rate: float
    teacher_seed: int
    checkpoint_every: int = 5000
    dropout: float = 0.0
    log_every: int = 0
    export: str = "model.safetensors"

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Recipe:
        """Take the recipe's fields from a profile's parameters; KeyError names a missing one."""
        names = [field.name for field in fields(cls) if field.default is MISSING or field.name in parameters]
        return cls(**{name: parameters[name] for name in names})

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype that `dtype` names; ValueError if torch has no such floating-point dtype."""
        dtype = getattr(torch, self.dtype, None)
        if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise ValueError(f"dtype {self.dtype!r} is no floating-point dtype of torch; say float32 or bfloat16")
        return dtype


def new_model(recipe: Recipe, seed: int, device: torch.device, dropout: float = 0.0) -> Qwen2ForCausalLM:
    """Build the recipe's architecture on the device, with weights drawn from `seed`; nothing is downloaded.

    `dropout` is the dropout of attention probabilities in training.
    """
    if recipe.model not in ARCHITECTURES:
        raise ValueError(f"model {recipe.model!r} is not known; say one of {', '.join(ARCHITECTURES)}")
    architecture = copy.deepcopy(dict(ARCHITECTURES[recipe.model]))  # transformers keeps and changes what it is given
    torch.manual_seed(seed)
    with device:
        model = Qwen2ForCausalLM(Qwen2Config(**architecture, attention_dropout=dropout))
    return model.to(dtype=recipe.torch_dtype)
