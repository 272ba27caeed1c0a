"""The tensors of a checkpoint are compared with the optimizer's slots, whatever their names are."""

from __future__ import annotations

import torch

from falsifiers.distill.measuring.training_state import digest_of

SLOTS = {
    "a": {"exp_avg": torch.ones(3), "step": torch.tensor(2.0)},
    "b": {"exp_avg": torch.zeros(3), "step": torch.tensor(2.0)},
}
WHOLE = {"0/m": torch.ones(3), "0/n": torch.tensor(2.0), "1/m": torch.zeros(3), "1/n": torch.tensor(2.0)}


def test_a_whole_state() -> None:
    """With all slots and the state of a generator, nothing is lost and nothing is foreign."""
    state = digest_of(SLOTS)
    assert state.lost(WHOLE) == 0
    assert state.foreign({**WHOLE, "random": torch.get_rng_state()}) == []


def test_lost_and_foreign_tensors() -> None:
    """A slot that is rounded or of another step is both lost and foreign. A slot that occurs twice is foreign once."""
    state = digest_of(SLOTS)
    rounded = {**WHOLE, "0/m": torch.ones(3).bfloat16(), "1/n": torch.tensor(3.0)}
    assert (state.lost(rounded), state.foreign(rounded)) == (2, ["0/m", "1/n"])
    assert state.foreign({**WHOLE, "0/o": torch.ones(3)}) == ["0/o"]
    assert state.foreign({**WHOLE, "counter": torch.zeros(1, dtype=torch.uint8)}) == ["counter"]
