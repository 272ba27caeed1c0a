"""The teacher: the same architecture, trained briefly on the text, so that there is something to distil."""

import inspect
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
import transformers
from torch import Tensor
from transformers import Qwen2ForCausalLM

from falsifiers.distill.reference import config
from falsifiers.distill.reference.config import ARCHITECTURES, Recipe, new_model
from falsifiers.distill.text import corpus as corpus_module
from falsifiers.distill.text.corpus import Corpus, sample
from falsifiers.distill.text.tensor_cache import cached_tensors

# The fields of the recipe that determine the teacher; runs that share a teacher may differ in others.
_SHAPES_TEACHER = frozenset(
    {"model", "sequence", "dtype", "teacher_steps", "teacher_batch", "teacher_learning_rate", "teacher_seed"}
)


def trained_teacher(
    recipe: Recipe, corpus: Corpus, tokenizer: str, device: torch.device, cache: Path
) -> Qwen2ForCausalLM:
    """A frozen teacher on the device, from the cache if the same teacher was trained before."""
    teacher = _new_teacher(recipe, device)
    determined_by = _determined_by(recipe, corpus, tokenizer, device)
    weights = cached_tensors(cache, "teacher", determined_by, lambda: _train(recipe, corpus, device))
    with torch.no_grad():
        for name, parameter in teacher.named_parameters():
            parameter.copy_(weights[name])
    return teacher.requires_grad_(False).eval()


def _new_teacher(recipe: Recipe, device: torch.device) -> Qwen2ForCausalLM:
    """An untrained teacher. Teachers have even seeds and students odd ones, so no student starts as a teacher."""
    return new_model(recipe, 2 * recipe.teacher_seed, device)


def _train(recipe: Recipe, corpus: Corpus, device: torch.device) -> dict[str, Tensor]:
    """Train a teacher on next tokens with AdamW; its learning rate falls to zero along a half cosine."""
    teacher = _new_teacher(recipe, device)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=recipe.teacher_learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.teacher_steps)
    for step in range(1, recipe.teacher_steps + 1):
        seed = (2 * recipe.teacher_seed, step)
        inputs, labels = sample(corpus.training, seed, recipe.teacher_batch, recipe.sequence)
        logits = teacher(input_ids=inputs.to(device), use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), labels.to(device).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return dict(teacher.named_parameters())


def _determined_by(recipe: Recipe, corpus: Corpus, tokenizer: str, device: torch.device) -> dict[str, Any]:
    """Everything that determines the teacher's weights: recipe, text, device, libraries and the code itself."""
    modules = (sys.modules[__name__], config, corpus_module)
    return {
        **{name: value for name, value in asdict(recipe).items() if name in _SHAPES_TEACHER},
        "architecture": dict(ARCHITECTURES[recipe.model]),
        "corpus": corpus.digest,
        "tokenizer": tokenizer,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "libraries": [torch.__version__, transformers.__version__],
        "code": [inspect.getsource(module) for module in modules],
    }
