"""The oracle's text and batches agree with the subject's, and its search for rows with a search row by row."""

from __future__ import annotations

from pathlib import Path
from pydoc_data import topics

import numpy as np
import pytest
import torch

from falsifiers.distill.oracle.corpus import Text, draw
from falsifiers.distill.oracle.rows import places
from falsifiers.distill.oracle.teacher import trained_teacher
from falsifiers.distill.reference import Distillation
from falsifiers.distill.text.corpus import load_corpus, sample
from harness import NotMeasured
from tests.falsifiers.distill.trials import a_setting


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file of 400 kB with short lines, one line of 40 kB, and a tenth block that is a copy of a training block."""
    file = tmp_path / "text.txt"
    lines = "".join(f"line {number} of a text that says {number * number} things\n" for number in range(9000))
    file.write_text("".join(f"{number:07d}\n" * 1025 for number in (*range(9), 3)) + lines + "x" * 40_000)
    return file


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe-300"])
def test_both_read_the_same_text(text: Path, tmp_path: Path, tokenizer: str) -> None:
    """The oracle reads the same training blocks and digest, also from the cache. The copied block is not held out."""
    parameters = {"corpus": str(text), "tokenizer": tokenizer}
    theirs = load_corpus(parameters, tmp_path / "cache")
    for ours in (Text.read(parameters, tmp_path / "cache"), Text.read(parameters, tmp_path / "cache")):
        assert ours.digest == theirs.digest
        assert [block.tolist() for block in ours.training] == [block.tolist() for block in theirs.training]
    assert len(ours.held_out) == 5  # of 62 blocks, without the copy


def test_both_draw_the_same_batches(tmp_path: Path) -> None:
    """Both draw the same batches of the standard library, which is the text of the profiles."""
    parameters = {"corpus": None, "tokenizer": "bytes"}
    ours, theirs = Text.read(parameters, tmp_path), load_corpus(parameters, tmp_path)
    assert ours.digest == theirs.digest
    for step in range(1, 6):
        assert all(map(torch.equal, draw(ours.training, (3, step), 8, 64), sample(theirs.training, (3, step), 8, 64)))


def test_each_row_has_its_first_place_in_a_block() -> None:
    """Repeated tokens give rows with several places. A row across two blocks and a foreign row have none."""
    random = np.random.default_rng(5)
    blocks = [random.integers(3, size=size) for size in (40, 7, 200)]
    rows = np.stack([blocks[0][4:14], blocks[2][190:], np.concatenate([blocks[0][-5:], blocks[1][:5]]), np.full(10, 9)])
    assert places(rows, blocks) == [(0, 4), (2, 190), None, None]
    ones = [np.zeros(4, dtype=np.uint8), np.ones(12, dtype=np.uint8)]
    assert places(np.ones((1, 10), dtype=np.int64), ones) == [(1, 0)]
    assert places(np.ones((1, 20), dtype=np.int64), ones) == [None]


def test_what_cannot_be_read_is_not_the_subjects_fault(tmp_path: Path) -> None:
    """A missing file, a file that is too short, and sequences longer than any block raise NotMeasured."""
    short = tmp_path / "short.txt"
    short.write_text("a line\n" * 100)
    for named in (short, tmp_path / "missing.txt"):
        with pytest.raises(NotMeasured):
            Text.read({"corpus": str(named), "tokenizer": "bytes"}, tmp_path)
    with pytest.raises(NotMeasured):
        draw([np.zeros(9)], (0,), 1, 9)


def test_both_train_the_same_teacher(tmp_path: Path) -> None:
    """After a few steps both are equal up to rounding, which AdamW amplifies where a gradient is nearly zero.

    One step less, or another seed, makes a difference fifty times as large. Training does not change the state of the
    random numbers.
    """
    setting = a_setting(tmp_path, corpus=topics.__file__, teacher_steps=3)
    theirs, state = Distillation(setting).teacher_weights(), torch.get_rng_state()
    text, rate = Text.read(setting.parameters, setting.cache), setting.parameters["teacher_learning_rate"]

    def apart(**other: int) -> float:
        ours = trained_teacher({**setting.parameters, **other}, text, torch.device("cpu"), setting.cache)
        assert ours.keys() == theirs.keys()
        return max(float((ours[name] - theirs[name]).abs().mean()) for name in ours) / rate

    assert apart() < 2e-3
    assert torch.equal(state, torch.get_rng_state())
    assert min(apart(teacher_steps=2), apart(teacher_seed=setting.parameters["teacher_seed"] + 1)) > 0.1
