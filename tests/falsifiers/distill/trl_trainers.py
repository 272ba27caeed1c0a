"""TRL's Trainers as subjects, if TRL is installed."""

from __future__ import annotations

from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

CHAT = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }} {% endfor %}"


def _tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "</s>", "user", "assistant", *(f"w{number}" for number in range(252))]
    plain = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    plain.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="</s>", unk_token="<pad>", chat_template=CHAT
    )


def _model(seed: int) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4}
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=256, num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, **sizes
        )
    )


def _options(steps: int, output_dir: str, seed: int, learning_rate: float, **more: Any) -> dict[str, Any]:
    if steps < 1:
        raise ValueError(f"{steps} steps were asked for")
    return {
        "output_dir": output_dir,
        "max_steps": steps,
        "per_device_train_batch_size": 2,
        "learning_rate": learning_rate,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.01,
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "logging_steps": 1,
        "seed": seed,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        **more,
    }


def sft(steps: int, seed: int, output_dir: str, learning_rate: float, **_: object) -> Any:
    """Supervised fine-tuning, without a teacher."""
    from trl import SFTConfig, SFTTrainer

    rows = torch.randint(4, 256, (8, 16), generator=torch.Generator().manual_seed(seed)).tolist()
    return SFTTrainer(
        model=_model(seed),
        args=SFTConfig(**_options(steps, output_dir, seed, learning_rate)),
        train_dataset=Dataset.from_dict({"input_ids": rows}),
        processing_class=_tokenizer(),
    )


def gkd(steps: int, seed: int, output_dir: str, learning_rate: float, **_: object) -> Any:
    """Generalised knowledge distillation, on the texts of the data set."""
    from trl.experimental.gkd import GKDConfig, GKDTrainer

    drawn = torch.randint(0, 252, (8, 12), generator=torch.Generator().manual_seed(seed)).tolist()
    texts = [" ".join(f"w{number}" for number in row) for row in drawn]
    messages = [[{"role": "user", "content": text[:20]}, {"role": "assistant", "content": text}] for text in texts]
    return GKDTrainer(
        model=_model(2 * seed + 1),
        teacher_model=_model(1000),
        args=GKDConfig(**_options(steps, output_dir, seed, learning_rate, lmbda=0.0, beta=0.0)),
        train_dataset=Dataset.from_dict({"messages": messages}),
        processing_class=_tokenizer(),
    )
