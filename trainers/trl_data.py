"""What TRL's Trainers demand beside the models: a data set of `datasets`, a collator and a tokenizer."""

from __future__ import annotations

from typing import Any

import torch
from datasets import Dataset
from datasets.table import InMemoryTable
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast

__all__ = ["bytes_tokenizer", "collate", "dataset"]


def dataset(rows: Tensor) -> Dataset:
    """Rows of token ids. With a fingerprint, because computing one fails with some versions of pyarrow."""
    return Dataset(InMemoryTable.from_pydict({"input_ids": rows.tolist()}), fingerprint="rows-of-a-claim")


def collate(samples: list[dict[str, Any]]) -> dict[str, Tensor]:
    """A batch of rows of one length: each token but the first is a label."""
    tokens = torch.tensor([sample["input_ids"] for sample in samples])
    return {"input_ids": tokens, "labels": tokens.clone(), "attention_mask": torch.ones_like(tokens)}


def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte. The rows of the claims are token ids already, so it never reads a text."""
    plain = Tokenizer(WordLevel({f"<{number:02x}>": number for number in range(256)}))
    named = dict.fromkeys(("pad_token", "eos_token", "unk_token"), "<00>")
    return PreTrainedTokenizerFast(tokenizer_object=plain, **named)
