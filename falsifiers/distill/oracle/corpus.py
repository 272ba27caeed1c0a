"""The text by the rule that the contracts state, read without any code of a subject.

- The text is the file that parameter `corpus` names. Without one, it is the sources of the running Python's standard
  library, one after the other in the order of their paths. Tests and installed packages are left out.
- A block ends after the first line end at or beyond its byte 8,192, or after 16,384 bytes if there is none.
- Every tenth block is held out, unless its bytes are those of a training block. The other nine are training text.
- Tokens are bytes, or those of a byte-level BPE in the manner of GPT-2, trained on the training blocks alone.
- A batch is drawn with `numpy.random.default_rng(seed)`: first the block of each row, among the blocks with more tokens
  than a sequence; then the start of each row in its block.
"""

from __future__ import annotations

import hashlib
import os
import re
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
from filelock import FileLock
from torch import Tensor

from harness import NotMeasured

__all__ = ["Text", "Tokens", "draw"]

Tokens = npt.NDArray[np.integer[Any]]

_BLOCK = re.compile(rb"(?s:.{8192})[^\n]{0,8191}\n|(?s:.{1,16384})")
_NO_SOURCES = {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}


@dataclass(frozen=True)
class Text:
    """Tokenised text.

    Attributes:
        training, held_out: the token ids of each block, in the order of the text.
        digest: SHA-256 of the text's bytes, in hex.
    """

    training: tuple[Tokens, ...]
    held_out: tuple[Tokens, ...]
    digest: str

    @classmethod
    def read(cls, parameters: Mapping[str, Any], cache: Path) -> Text:
        """Read the text that the parameters `corpus` and `tokenizer` ask for.

        Raises:
            NotMeasured: the file cannot be read, or is too short to hold a block out.
            ValueError: an unknown tokenizer.
        """
        text = _bytes(parameters.get("corpus"))
        blocks = _BLOCK.findall(text)
        training = [block for number, block in enumerate(blocks, start=1) if number % 10 != 0]
        trained = set(training)
        held_out = [block for block in blocks[9::10] if block not in trained]
        if not held_out:
            raise NotMeasured(f"the corpus of {len(text)} bytes is too short to hold a block out; name a longer file")
        tokens = _tokens(str(parameters["tokenizer"]), training, training + held_out, cache)
        return cls(tuple(tokens[: len(training)]), tuple(tokens[len(training) :]), hashlib.sha256(text).hexdigest())


def draw(blocks: Sequence[Tokens], seed: tuple[int, ...], batch: int, sequence: int) -> tuple[Tensor, Tensor]:
    """The inputs and labels [batch, sequence] that the stated sampler draws with a seed: int64, on the CPU.

    Raises:
        NotMeasured: no block is longer than `sequence` tokens.
    """
    long = [block for block in blocks if len(block) > sequence]
    if not long:
        raise NotMeasured(f"no block of the corpus has more than {sequence} tokens; ask for shorter sequences")
    random = np.random.default_rng(seed)
    chosen = [long[index] for index in random.integers(len(long), size=batch)]
    starts = [random.integers(len(block) - sequence) for block in chosen]
    rows = [block[start : start + sequence + 1] for block, start in zip(chosen, starts, strict=True)]
    tokens = torch.tensor(np.array(rows), dtype=torch.int64)
    return tokens[:, :sequence].clone(), tokens[:, 1:].clone()


def _bytes(named: object) -> bytes:
    """The bytes of the named file, or of the standard library's sources."""
    if named:
        try:
            return Path(str(named)).read_bytes()
        except OSError as error:
            raise NotMeasured(f"the corpus cannot be read: {error}") from error
    sources: list[Path] = []
    for folder, inner, files in os.walk(sysconfig.get_path("stdlib")):
        inner[:] = set(inner) - _NO_SOURCES
        sources += [Path(folder, name) for name in files if Path(name).suffix == ".py"]
    return b"".join(source.read_bytes() for source in sorted(sources, key=lambda source: source.parts))


def _tokens(tokenizer: str, training: list[bytes], blocks: list[bytes], cache: Path) -> list[Tokens]:
    """The token ids of each block."""
    if tokenizer == "bytes":
        return [np.frombuffer(block, dtype=np.uint8) for block in blocks]
    named = re.fullmatch(r"bpe-([0-9]+)", tokenizer)
    if not named:
        raise ValueError(f"tokenizer {tokenizer!r} is not known; say 'bytes', or 'bpe-16384' for another vocabulary")
    key = hashlib.sha256(f"{tokenizer} {tokenizers.__version__} {len(training)} ".encode())
    for block in blocks:
        key.update(hashlib.sha256(block).digest())
    path = cache / f"oracle-{key.hexdigest()[:32]}.npz"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):  # the first trial learns the byte pairs, and the others wait for it
            if not path.exists():
                ids = _byte_pairs(int(named[1]), training, blocks)
                beside = path.with_suffix(f".{os.getpid()}.npz")
                np.savez(beside, ids=np.concatenate(ids), ends=np.cumsum([len(one) for one in ids]))
                beside.replace(path)
        with np.load(path) as kept:
            return np.split(kept["ids"], kept["ends"][:-1])
    except OSError as error:
        raise NotMeasured(f"the cache {cache} cannot be used: {error}; set HARNESS_CACHE_DIR") from error


def _byte_pairs(size: int, training: list[bytes], blocks: list[bytes]) -> list[Tokens]:
    """The token ids of each block by a vocabulary of `size` that is learned from the training blocks."""
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = level
    tokenizer.train_from_iterator(
        [block.decode(errors="replace") for block in training],
        tokenizers.trainers.BpeTrainer(vocab_size=size, initial_alphabet=level.alphabet(), show_progress=False),
    )
    encoded = tokenizer.encode_batch([block.decode(errors="replace") for block in blocks])
    return [np.array(encoding.ids, dtype=np.int32) for encoding in encoded]
