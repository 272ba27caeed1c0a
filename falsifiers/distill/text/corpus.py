"""Real text for teacher and student, cut into blocks; every tenth is held out.

The text is the sources of the running Python's standard library, or the file that parameter `corpus` names. It is cut
at line ends into blocks of about 8 KiB. A sequence never crosses two blocks, so training and held-out sequences share
no byte of the text. Falsifiers read the held-out blocks with their own code.
"""

import hashlib
import os
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
from torch import Tensor

from falsifiers.distill.text.tensor_cache import cached_tensors
from harness import NotMeasured

Tokens = npt.NDArray[np.integer[Any]]

_BLOCK_BYTES = 8192
_HELD_OUT_EVERY = 10
# Tests are left out: distributions package them separately, so the text would depend on the installation.
_LEFT_OUT = frozenset({"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"})


@dataclass(frozen=True)
class Corpus:
    """Tokenised text.

    Attributes:
        training: blocks of token ids, one array [tokens] each.
        digest: SHA-256 of the text's bytes, in hex, including the held-out ones.
    """

    training: tuple[Tokens, ...]
    digest: str


def load_corpus(parameters: Mapping[str, Any], cache: Path) -> Corpus:
    """Read the text that the parameters ask for and tokenise it.

    Parameters read: `corpus` (a file's path; without it the standard library's sources) and `tokenizer`: `bytes`, or
    `bpe-N` for byte-pair encoding with a vocabulary of N, trained on the training blocks alone.

    Raises:
        NotMeasured: the file cannot be read.
        ValueError: an unknown tokenizer.
    """
    text = _text(parameters.get("corpus"))
    tokens = _tokenised(str(parameters["tokenizer"]), training_blocks(blocks_of(text)), cache)
    return Corpus(tuple(tokens), hashlib.sha256(text).hexdigest())


def blocks_of(text: bytes) -> list[bytes]:
    """Cut a text at line ends into blocks of one to two times `_BLOCK_BYTES`; the blocks concatenated are the text."""
    blocks, start = [], 0
    while start < len(text):
        line_end = text.find(b"\n", start + _BLOCK_BYTES, start + 2 * _BLOCK_BYTES)
        end = line_end + 1 if line_end >= 0 else start + 2 * _BLOCK_BYTES
        blocks.append(text[start:end])
        start = end
    return blocks


def training_blocks(blocks: list[bytes]) -> list[bytes]:
    """The blocks to train on: all but every tenth, which is held out."""
    return [block for number, block in enumerate(blocks, start=1) if number % _HELD_OUT_EVERY]


def sample(blocks: tuple[Tokens, ...], seed: tuple[int, ...], batch: int, sequence: int) -> tuple[Tensor, Tensor]:
    """Draw sequences and their next tokens; equal seeds draw equal sequences, on every machine.

    Returns: CPU token ids [batch, sequence] and, shifted by one position, their labels [batch, sequence], both int64.

    Raises:
        NotMeasured: no block is longer than `sequence` tokens.
    """
    long_enough = [block for block in blocks if len(block) > sequence]
    if not long_enough:
        raise NotMeasured(f"no block of the corpus has more than {sequence} tokens; ask for shorter sequences")
    random = np.random.default_rng(seed)
    rows = []
    for index in random.integers(len(long_enough), size=batch):
        block = long_enough[index]
        start = random.integers(len(block) - sequence)
        rows.append(block[start : start + sequence + 1].astype(np.int64))
    tokens = torch.from_numpy(np.stack(rows))
    return tokens[:, :-1], tokens[:, 1:]


def _text(named: object) -> bytes:
    """The bytes of the named file, or of the standard library's sources in the order of their paths."""
    if named:
        try:
            return Path(str(named)).read_bytes()
        except OSError as error:
            raise NotMeasured(f"the corpus cannot be read: {error}") from error
    root = Path(sysconfig.get_path("stdlib"))
    return b"".join(source.read_bytes() for source in sorted(_sources(root), key=lambda source: source.parts))


def _sources(folder: Path) -> Iterator[Path]:
    """All Python files below a folder, without excluded folders: site-packages can be large."""
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        yield from (Path(path, name) for name in files if name.endswith(".py"))


def _tokenised(tokenizer: str, training: list[bytes], cache: Path) -> list[Tokens]:
    if tokenizer == "bytes":
        return [np.frombuffer(block, dtype=np.uint8) for block in training]
    kind, _, size = tokenizer.partition("-")
    if kind != "bpe" or not size.isdecimal():
        raise ValueError(f"tokenizer {tokenizer!r} is not known; say 'bytes', or 'bpe-16384' for another vocabulary")
    determined_by = {
        "training": hashlib.sha256(b"\0".join(training)).hexdigest(),
        "size": size,
        "tokenizers": tokenizers.__version__,
    }
    kept = cached_tensors(cache, "bpe", determined_by, lambda: _with_bpe(training, int(size)))
    return np.split(kept["tokens"].numpy(), np.cumsum(kept["lengths"].numpy())[:-1])


def _with_bpe(training: list[bytes], size: int) -> dict[str, Tensor]:
    """Train a byte-level BPE in the manner of GPT-2 on the blocks, and encode them.

    Returns: all token ids in one tensor, and the number of tokens of each block.
    """
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    blocks = [block.decode(errors="replace") for block in training]
    tokenizer.train_from_iterator(blocks, trainer)
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(blocks)]
    return {
        "tokens": torch.tensor([token for ids in encoded for token in ids], dtype=torch.int32),
        "lengths": torch.tensor([len(ids) for ids in encoded], dtype=torch.int64),
    }
