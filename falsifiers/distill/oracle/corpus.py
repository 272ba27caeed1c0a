"""The text by the rule that the contracts state; shares no code with a subject.

- The text is the file that parameter `corpus` names. Without one, it is the sources of the running Python's standard
  library, concatenated in the order of their paths, without tests and installed packages.
- A block ends after the first line end at or beyond its byte 8,192, or after 16,384 bytes if there is none.
- Every tenth block is held out, unless its bytes equal those of a training block. The other nine are training text.
- Tokens are bytes, or those of a byte-level BPE like GPT-2's, trained on the training blocks alone.
- A batch is drawn with `numpy.random.default_rng(seed)`: first the block of each row, among the blocks with more tokens
  than a sequence; then the start of each row in its block.
"""

from __future__ import annotations

import hashlib
import inspect
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
from torch import Tensor

from falsifiers.distill.oracle.cache import kept
from harness import NotMeasured

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
    if tokenizer == "bytes":
        return [np.frombuffer(block, dtype=np.uint8) for block in blocks]
    named = re.fullmatch(r"bpe-([0-9]+)", tokenizer)
    if not named:
        raise ValueError(f"tokenizer {tokenizer!r} is not known; say 'bytes', or 'bpe-16384' for another vocabulary")
    determined_by = {
        "size": int(named[1]),
        "training": hashlib.sha256(b"\0".join(training)).hexdigest(),
        "blocks": hashlib.sha256(b"\0".join(blocks)).hexdigest(),
        "tokenizers": tokenizers.__version__,
        "code": inspect.getsource(_byte_pairs),
    }
    encoded = kept(cache, "bpe", determined_by, lambda: _byte_pairs(int(named[1]), training, blocks))
    return np.split(encoded["ids"].numpy(), encoded["ends"].numpy()[:-1])


def _byte_pairs(size: int, training: list[bytes], blocks: list[bytes]) -> dict[str, Tensor]:
    """The token ids of all blocks, and where each block ends; the vocabulary is learnt from the training blocks."""
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = level
    tokenizer.train_from_iterator(
        [block.decode(errors="replace") for block in training],
        tokenizers.trainers.BpeTrainer(vocab_size=size, initial_alphabet=level.alphabet(), show_progress=False),
    )
    encoded = [
        encoding.ids for encoding in tokenizer.encode_batch([block.decode(errors="replace") for block in blocks])
    ]
    return {
        "ids": torch.tensor([token for ids in encoded for token in ids], dtype=torch.int32),
        "ends": torch.tensor([len(ids) for ids in encoded]).cumsum(0),
    }
