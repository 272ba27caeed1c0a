"""Which sites a forward masks, seen without numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from falsifiers.param_decomp.configuration import configuration_of
from falsifiers.param_decomp.reference.trainer import Decomposition
from falsifiers.param_decomp.watching import masked_sites, misplaced
from harness import Setting

LAYERS = {"configuration": "nine-layers-toy"}


@pytest.mark.parametrize("storage", ["real", "meta"])
@pytest.mark.parametrize("remat", [False, True])
def test_stochastic_forwards_are_told_from_adversarial_ones(storage: str, remat: bool, tmp_path: Path) -> None:
    """The step has adversarial forwards too, and a backward pass that computes layers again."""
    parameters = {**LAYERS, "storage": storage, "remat": remat, "samples": 2}
    forwards = masked_sites(Decomposition(Setting(parameters, "cpu", 0, tmp_path, tmp_path)))
    assert [len(sites) for sites in forwards] == [9] * 6
    assert misplaced(configuration_of(parameters), forwards) == []


@pytest.mark.parametrize(
    "changed",
    [
        lambda forwards: forwards[:-1],
        lambda forwards: [*forwards, forwards[0]],
        lambda forwards: [forwards[0] + forwards[1], *forwards[2:]],
        lambda forwards: [forwards[1], forwards[0], *forwards[2:]],
        lambda forwards: [[*forwards[0][:-1], forwards[0][0]], *forwards[1:]],
    ],
)
def test_other_chunks_are_found(changed: object) -> None:
    config = configuration_of(LAYERS)
    names = [f"layers.{layer}.mlp.{kind}_proj" for layer in range(2, 11) for kind in ("gate", "up", "down")]
    right = [names[start : start + 9] for start in (0, 9, 18)]
    assert misplaced(config, right) == []
    assert misplaced(config, changed(right)) != []  # type: ignore[operator]
