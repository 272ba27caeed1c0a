"""Tokens to train on: PyTorch's Python sources, by a byte-pair tokenizer that is trained on them.

    tokenizer = train_tokenizer(torch_text(), vocabulary=65_536)
    tokens, targets = batch(encoded(tokenizer, torch_text()), rows=32, sequence=2_048, seed=0)

Text is split before the merges as nanochat/tokenizer.py does: by GPT-4's pattern, with at most two digits a piece.
"""

from collections.abc import Iterable
from pathlib import Path

import tokenizers
import torch
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from torch import Tensor

_TORCH = Path(torch.__file__).parent
_PIECES = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


def torch_text(folders: Iterable[str] = ("_dynamo",)) -> list[str]:
    """Return the Python sources in folders of the installed PyTorch, a string a file, in the order of their paths."""
    files = [path for folder in folders for path in sorted((_TORCH / folder).rglob("*.py"))]
    return [path.read_text(encoding="utf-8") for path in files]


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Train a byte-level tokenizer of up to `vocabulary` tokens, 256 of them bytes; fewer if the texts have no more."""
    tokenizer = Tokenizer(BPE(byte_fallback=True, unk_token=None, fuse_unk=False))
    split = Split(Regex(_PIECES), behavior="isolated", invert=False)
    tokenizer.pre_tokenizer = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = ByteLevelDecoder()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=0, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encoded(tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    """Return the token ids of all texts, one after the other [tokens]."""
    return torch.tensor(
        [token for encoding in tokenizer.encode_batch(texts) for token in encoding.ids], dtype=torch.int64
    )


def batch(stream: Tensor, rows: int, sequence: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw rows [rows, sequence] from a stream of tokens, and the token that follows each of theirs.

    Raises:
        ValueError: the stream is not longer than a row.
    """
    if len(stream) <= sequence:
        raise ValueError(f"{len(stream)} tokens are too few for rows of {sequence}; give more text")
    starts = torch.randint(len(stream) - sequence, (rows, 1), generator=torch.Generator().manual_seed(seed))
    at = starts + torch.arange(sequence + 1)
    drawn = stream[at]
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
