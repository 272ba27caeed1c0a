"""The text that subjects train on is always the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from falsifiers.distill.text.corpus import blocks_of, load_corpus, sample, training_blocks
from harness import NotMeasured

BYTES = {"corpus": None, "tokenizer": "bytes"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file of 400 kB in which every line occurs once."""
    file = tmp_path / "text.txt"
    file.write_text("".join(f"line {number} of a text that says {number * number} things\n" for number in range(9000)))
    return file


def test_the_standard_library_is_always_the_same_text(tmp_path: Path) -> None:
    """Two readings have one digest and the same blocks."""
    first, second = load_corpus(BYTES, tmp_path), load_corpus(BYTES, tmp_path)
    assert len(first.digest) == 64
    assert first.digest == second.digest
    assert all((a == b).all() for a, b in zip(first.training, second.training, strict=True))


def test_blocks_joined_are_the_text(text: Path) -> None:
    """No text is lost or doubled, and every block ends with a line."""
    whole = text.read_bytes()
    blocks = blocks_of(whole)
    assert b"".join(blocks) == whole
    assert all(block.endswith(b"\n") for block in blocks)


def test_every_tenth_block_is_left_out(text: Path) -> None:
    """The other blocks stay in order."""
    blocks = blocks_of(text.read_bytes())
    assert training_blocks(blocks) == [block for block in blocks if block not in blocks[9::10]]


def test_equal_seeds_draw_equal_sequences(text: Path, tmp_path: Path) -> None:
    """The labels are the inputs shifted by one. Another seed draws other sequences."""
    corpus = load_corpus({"corpus": str(text), "tokenizer": "bytes"}, tmp_path)
    inputs, labels = sample(corpus.training, (1, 2), 4, 32)
    assert inputs.shape == labels.shape == (4, 32)
    assert torch.equal(inputs[:, 1:], labels[:, :-1])
    assert torch.equal(inputs, sample(corpus.training, (1, 2), 4, 32)[0])
    assert not torch.equal(inputs, sample(corpus.training, (1, 3), 4, 32)[0])


def test_byte_pairs_are_learned_once(text: Path, tmp_path: Path) -> None:
    """The second reading comes from the cache.

    Ids stay below the vocabulary's size, and the text is shorter than its bytes.
    """
    parameters = {"corpus": str(text), "tokenizer": "bpe-300"}
    corpus = load_corpus(parameters, tmp_path / "cache")
    (kept,) = (tmp_path / "cache").glob("bpe-*.safetensors")
    written = kept.stat().st_mtime_ns
    other = load_corpus(parameters, tmp_path / "cache")
    assert kept.stat().st_mtime_ns == written
    assert all((a == b).all() for a, b in zip(corpus.training, other.training, strict=True))
    assert max(block.max() for block in corpus.training) < 300
    assert sum(map(len, corpus.training)) < text.stat().st_size * 0.9 * 0.7


def test_what_cannot_be_read_is_not_the_subjects_fault(tmp_path: Path) -> None:
    """A missing file, and sequences longer than any block, raise NotMeasured."""
    with pytest.raises(NotMeasured):
        load_corpus({"corpus": str(tmp_path / "missing.txt"), "tokenizer": "bytes"}, tmp_path)
    with pytest.raises(NotMeasured):
        sample(load_corpus(BYTES, tmp_path).training, (0,), 1, 1_000_000)


def test_an_unknown_tokenizer_is_refused(text: Path, tmp_path: Path) -> None:
    """The message has the known names."""
    with pytest.raises(ValueError, match="bpe-16384"):
        load_corpus({"corpus": str(text), "tokenizer": "words"}, tmp_path)
