"""The unchanged Trainer of transformers can be probed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.tools.probe import predict

pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")

ROWS = [{"input_ids": torch.arange(16), "labels": torch.arange(16)} for _ in range(8)]


def _options(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder), "max_steps": 1, "per_device_train_batch_size": 4, "report_to": [],
        "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1, "optim": "adamw_torch",
    }  # fmt: skip


def _model() -> Any:
    config = transformers.Qwen2Config(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config)


def _with_transformers(folder: Path) -> Callable[[], Any]:
    trainer = transformers.Trainer(
        model=_model(), args=transformers.TrainingArguments(**_options(folder)), train_dataset=ROWS
    )
    return lambda: trainer.train()


def test_its_train_is_a_step(tmp_path: Path) -> None:
    weights = sum(one.numel() * 4 for one in _model().parameters())
    owners = predict(_with_transformers, tmp_path).by_owner
    assert weights <= owners["parameters"] <= weights + 4096  # blocks are multiples of 512 bytes
    assert 2 * weights <= owners["optimizer"] <= 2 * weights + 16384
