"""The statistical tests of a subject's draws, on draws with a known answer."""

from __future__ import annotations

import pytest
import torch

from falsifiers.param_decomp.statistics import chi_square_p, share_repeated, uniform_p


@pytest.mark.parametrize(("statistic", "freedom", "p"), [(3.841, 1, 0.05), (15.507, 8, 0.05), (20.09, 8, 0.01)])
def test_chi_square_has_the_tables_values(statistic: float, freedom: int, p: float) -> None:
    """The values are the percentage points of the chi-square distribution."""
    assert chi_square_p(statistic, freedom) == pytest.approx(p, rel=2e-3)


def test_uniform_numbers_are_told_from_others() -> None:
    """A grid is too uniform to be refused. Squares of uniform numbers are refused."""
    grid = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    assert uniform_p(grid) == 1.0
    assert uniform_p(grid**2) < 1e-30


def test_repeated_numbers_are_counted() -> None:
    """If each number occurs twice, half of them are repeated."""
    grid = torch.arange(100, dtype=torch.float64) / 100
    assert share_repeated(grid) == 0.0
    assert share_repeated(grid.repeat(2)) == 0.5
