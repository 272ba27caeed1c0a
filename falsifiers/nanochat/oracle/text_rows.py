"""Finds which rows of tokens are substrings of a text with the next tokens as targets.

The tokens are those of a byte-level byte-pair encoding trained on the text. Before the merges, GPT-4's pattern splits
each file, with at most two digits per piece. Source: nanochat/tokenizer.py.
"""

from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor

_TORCH = Path(*torch.__path__)
_IGNORED = -1
_PIECES = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


def tokens_of_sources(folders: Iterable[str], vocabulary: int) -> Tensor:
    """Return the tokens [any] of all Python files in folders of PyTorch, in the order of their paths."""
    files = [file for folder in folders for file in sorted((_TORCH / folder).rglob("*.py"))]
    texts = [file.read_text(encoding="utf-8") for file in files]
    encoder = Tokenizer(models.BPE())
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_PIECES), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    letters = pre_tokenizers.ByteLevel.alphabet()
    encoder.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=letters, show_progress=False)
    )
    return torch.cat([torch.tensor(encoding.ids, dtype=torch.int64) for encoding in encoder.encode_batch(texts)])


def right_rows(text: Tensor, pieces: Iterable[tuple[Tensor, Tensor]], sequence: int, ignored: int) -> int:
    """Return the number of distinct rows that are substrings of a text with their next tokens as targets.

    Args:
        text: token ids [any].
        pieces: tokens [rows, sequence] and as many targets; rows of another length do not count.
        ignored: how many targets are -1, the first ones of each row.
    """
    return len(
        {
            tuple(row[0].tolist())
            for tokens, targets in pieces
            if tokens.shape[1:] == (sequence,) and targets.numel() == tokens.numel()
            for row in zip(tokens, targets.view_as(tokens), strict=True)
            if _right(text, *row, ignored)
        }
    )


def _right(text: Tensor, tokens: Tensor, targets: Tensor, ignored: int) -> bool:
    piece = torch.cat((tokens, targets[-1:]))
    next_tokens = piece[1:].clone()
    next_tokens[:ignored] = _IGNORED
    return torch.equal(targets, next_tokens) and _occurs(text, piece.tolist())


def _occurs(text: Tensor, piece: list[int]) -> bool:
    places = torch.arange(len(text) - len(piece) + 1)
    for number, token in enumerate(piece):
        places = places[text[places + number] == token]
    return len(places) > 0
