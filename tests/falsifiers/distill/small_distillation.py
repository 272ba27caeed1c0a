"""A distillation of models with 32 features on bytes, in seconds, for tests of finished runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from falsifiers.apr.reference.format import Reference
from falsifiers.apr.subject import AprFile, TensorRecord

STEPS = 50
_NUMBERS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}
"""The numbers of dtypes in APR v2."""


def model(seed: int) -> Qwen2ForCausalLM:
    """A fresh model."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=256, num_key_value_heads=1, max_position_embeddings=64, **sizes))


def some_text(length: int = 60_000) -> bytes:
    """Return letters. Four in five follow from the letter before, so a model learns them quickly."""
    chance = random.Random(0)
    order = list(range(26))
    chance.shuffle(order)
    following, last, letters = dict(zip(order, order[1:] + order[:1], strict=True)), 0, bytearray()
    for _ in range(length):
        last = following[last] if chance.random() < 0.8 else chance.randrange(26)
        letters.append(ord("a") + last)
    return bytes(letters)


def train(
    student: Any,
    text: bytes,
    steps: int,
    teacher: Any = None,
    after: Callable[[int], None] = lambda step: None,
    ahead: int = 1,
) -> tuple[list[float], list[float]]:
    """Losses of the steps, with a teacher those of the claim, and their cross entropies.

    Args:
        after: is called after each step.
        ahead: how many tokens ahead the label is, which should be the next one.
    """
    chance, tokens = torch.Generator().manual_seed(3), torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    optimizer, losses, entropies = torch.optim.AdamW(student.parameters(), lr=0.02), [], []
    for step in range(1, steps + 1):
        starts = torch.randint(len(tokens) - 32 - ahead, (8,), generator=chance)
        rows = torch.stack([tokens[start : start + 32] for start in starts])
        labels = torch.stack([tokens[start + ahead : start + ahead + 32] for start in starts])
        answer = student(rows).logits.flatten(0, 1)
        loss = entropy = F.cross_entropy(answer, labels.flatten())
        if teacher is not None:
            with torch.no_grad():
                taught = teacher(rows).logits.flatten(0, 1)
            softened = F.log_softmax(answer / 4, -1), F.log_softmax(taught / 4, -1)
            loss = 0.3 * loss + 0.7 * 16 * F.kl_div(*softened, log_target=True, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        entropies.append(entropy.item())
        after(step)
    return losses, entropies


def apr_file(weights: Mapping[str, Tensor], path: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write weights as APR v2 in a dtype."""
    records = [
        TensorRecord(
            name,
            _NUMBERS[dtype],
            tuple(weight.shape),
            weight.to(dtype).contiguous().view(torch.uint8).numpy().tobytes(),
        )
        for name, weight in weights.items()
    ]
    path.write_bytes(Reference(None).write(AprFile(records, {})))  # type: ignore[arg-type]
