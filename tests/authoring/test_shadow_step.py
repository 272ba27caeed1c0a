"""The choice of the steps that a shadow checks, and the difference of tensors from their expected values."""

from __future__ import annotations

import math

import pytest
import torch

from harness.authoring.shadow_step import (
    Difference,
    chosen_steps,
    difference,
    differences,
    relative_difference,
    worst,
)


@pytest.mark.parametrize("seed", range(5))
def test_the_first_the_last_and_the_steps_around_an_event_are_always_checked(seed: int) -> None:
    """Three more steps are drawn. An event at the last step has no step after it."""
    chosen = chosen_steps(seed, 50, around=(5, 25, 50), drawn=3)
    assert {1, 5, 6, 25, 26, 50} < set(chosen)
    assert len(chosen) == 9
    assert list(chosen) == sorted(chosen)
    assert chosen == chosen_steps(seed, 50, around=(5, 25, 50), drawn=3)


def test_the_seed_draws_the_other_steps() -> None:
    """Ten seeds draw different steps. All steps of a short run are checked."""
    assert len({chosen_steps(seed, 1000) for seed in range(10)}) > 1
    assert chosen_steps(0, 3, around=(0, 7)) == (1, 2, 3)


def test_a_difference_is_relative_to_the_scale_and_to_its_own_tensor() -> None:
    """A small tensor counts as much as a large one."""
    expected = {"large": torch.full((100,), 1000.0), "small": torch.full((2,), 1e-3)}
    seen = {"large": expected["large"] * 1.001, "small": expected["small"] * -1}
    found = {difference.tensor: difference.ratio for difference in differences("update", seen, expected)}
    assert found == {"large": pytest.approx(1e-3, rel=1e-3), "small": pytest.approx(2.0)}
    assert worst(differences("update", seen, expected))["update"].tensor == "small"
    scaled = relative_difference(seen["large"], expected["large"], torch.full((100,), 10.0))
    assert scaled == pytest.approx(0.1, rel=1e-3)


def test_what_cannot_be_compared_is_infinitely_far() -> None:
    """A missing tensor, an extra tensor, another shape, a transposition and a NaN are infinitely far."""
    expected = {"missing": torch.ones(2), "shape": torch.ones(2, 3), "nan": torch.ones(2), "same": torch.ones(2)}
    seen = {"foreign": torch.ones(2), "shape": torch.ones(3, 2), "nan": torch.tensor([1.0, math.nan])}
    found = {
        difference.tensor: difference.ratio
        for difference in differences("slot", {**seen, "same": torch.ones(2)}, expected)
    }
    assert found == {**dict.fromkeys(("missing", "foreign", "shape", "nan"), math.inf), "same": 0.0}
    assert difference("loss", math.nan, 2.0) == Difference("loss", "", math.inf)
    assert relative_difference(torch.ones(2), torch.zeros(2), torch.zeros(2)) == math.inf


def test_what_the_dtype_rounds_away_is_no_difference() -> None:
    """An update of a thousandth does not move a weight of 1 in bfloat16; in float32 it does."""
    expected, update = torch.tensor([1.001], dtype=torch.float64), torch.tensor([0.001], dtype=torch.float64)
    assert relative_difference(torch.ones(1, dtype=torch.bfloat16), expected, update, roundings=1) == 0.0
    assert relative_difference(torch.ones(1), expected, update, roundings=1) == pytest.approx(1.0, rel=1e-3)


def test_numbers_differ_relative_to_the_expected_one() -> None:
    """A reported loss that is 20 % too low is 0.2 away."""
    assert difference("loss", 0.8, 1.0).ratio == pytest.approx(0.2)


def test_what_the_shadows_own_rounding_explains_is_no_difference() -> None:
    """Each tensor may differ by three times the shadow's rounding error in the subject's dtype."""
    expected = {"cancels": torch.tensor([1.0], dtype=torch.float64), "exact": torch.tensor([1.0], dtype=torch.float64)}
    rounded = {"cancels": expected["cancels"] + 0.5, "exact": expected["exact"] + 0.01}
    seen = {name: tensor - 1.0 for name, tensor in expected.items()}
    found = {
        difference.tensor: difference.ratio for difference in differences("gradient", seen, expected, rounded=rounded)
    }
    assert found == {"cancels": 0.0, "exact": pytest.approx(0.97)}
    gone = {name: torch.full_like(tensor, math.nan) for name, tensor in seen.items()}
    assert {difference.ratio for difference in differences("gradient", gone, expected, rounded=rounded)} == {math.inf}
