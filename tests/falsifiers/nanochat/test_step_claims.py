"""Claims about a step: negative controls, tokens, and the allocator's variables."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from falsifiers.nanochat.code_for_device import of_capability
from falsifiers.nanochat.oracle.text_rows import right_rows
from falsifiers.nanochat.reference.model import Norm
from falsifiers.nanochat.reference.paths import KernelPaths
from falsifiers.nanochat.reference.tokens import batch, encoded, train_tokenizer
from harness import Setting
from harness.base.vocabulary import Outcome
from harness.contract.entry_point import resolve
from harness.contract.project import Project
from tests.falsifiers.in_process import judged
from tests.falsifiers.planted import planted

CONTRACTS = Path(__file__).parents[3] / "contracts" / "nanochat"
TEXT = ["def step(model):\n    return model.loss(17)\n"] * 8


class OneNorm(KernelPaths):
    """Its paths "liger" and "triton" are the same."""

    def norm(self, path: str) -> Norm:
        """Give both paths torch's normalisation."""
        return super().norm("current")


def test_paths_that_are_the_same_pass(tmp_path: Path) -> None:
    """The claim that the paths are equal is true for this subject, and false only for the changelog's."""
    contract = Project.find(CONTRACTS).contract("F-GB10-KERNEL-ALIAS-001")
    judgment = judged(contract, f"{__name__}:OneNorm", tmp_path)
    assert not judgment.with_outcome(Outcome.FAIL)


def test_a_tokenizer_gives_back_its_text() -> None:
    """Bytes that the training text lacks have tokens too, and digits come in pairs."""
    tokenizer = train_tokenizer(TEXT, 300)
    for text in (TEXT[0], "Grüße, 2026\r\n\t∂x"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.get_vocab_size() <= 300
    assert len(tokenizer.encode("1234").ids) >= 2


def test_targets_are_the_next_tokens() -> None:
    """Equal seeds draw equal rows. A text that is too short is refused."""
    stream = encoded(train_tokenizer(TEXT, 300), TEXT)
    tokens, targets = batch(stream, 3, 5, seed=1)
    assert (tokens[:, 1:] == targets[:, :-1]).all()
    assert (batch(stream, 3, 5, seed=1)[0] == tokens).all()
    with pytest.raises(ValueError, match="too few"):
        batch(stream[:5], 3, 5, seed=1)


def test_only_pieces_of_the_text_with_their_next_tokens_are_right() -> None:
    """A row is wrong if it is reversed, of another length, or has another target."""
    text = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    tokens, targets = torch.tensor([[1, 4, 1], [5, 9, 2]]), torch.tensor([[4, 1, 5], [9, 2, 6]])
    assert right_rows(text, [(tokens, targets)], 3, ignored=0) == 2
    assert right_rows(text, [(tokens, targets.flatten())], 3, ignored=0) == 2
    assert right_rows(text, [(tokens, targets.roll(1, 0))], 3, ignored=0) == 0
    assert right_rows(text.flip(0), [(tokens, targets)], 3, ignored=0) == 0
    assert right_rows(text, [(tokens, targets)], 4, ignored=0) == 0
    assert right_rows(text, [(tokens, targets[:, 1:])], 3, ignored=0) == 0
    assert right_rows(text, [(tokens[[0, 0]], targets[[0, 0]])], 3, ignored=0) == 1  # a row that is there twice
    assert right_rows(text, [(tokens, targets), (tokens[:1], targets[:1])], 3, ignored=0) == 2
    targets[0, 0] = -1
    assert right_rows(text, [(tokens, targets)], 3, ignored=0) == 1
    assert right_rows(text, [(tokens, targets)], 3, ignored=1) == 1


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (["sm_75", "sm_120", "compute_120", "sm_12"], []),
        (["sm_120", "sm_121a", "sm_121"], ["sm_121a", "sm_121"]),
        (["sm_120f", "compute_121f"], ["compute_121f"]),
    ],
)
def test_an_architecture_of_a_gb10_is_found_in_a_list(listed: list[str], found: list[str]) -> None:
    assert of_capability(listed, "12.1") == found


def test_only_the_right_name_at_the_right_time_is_read(tmp_path: Path) -> None:
    """The defects differ from the reference in the variables with which the process begins."""
    contract = Project.find(CONTRACTS).contract("F-GB10-ALLOC-001")
    found = {}
    for mutant in (None, *contract.mutants):
        with planted(mutant):
            subject = resolve(contract.subject)(Setting({}, "cpu", 0, tmp_path, tmp_path))
            found[mutant.id if mutant else "reference"] = subject.environment(), subject.late()
    right = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert found.pop("reference") == (right, {})
    assert found["after-the-first-tensor"] == ({}, right)
    assert len(found) == 3
    assert right not in [environment for environment, _ in found.values()]
