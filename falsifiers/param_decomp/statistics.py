"""Statistical tests of a subject's draws. A small p-value means that correct draws would rarely look so."""

import torch
from torch import Tensor

_BINS = 20


def chi_square_p(statistic: float, freedom: int) -> float:
    """The probability that a chi-square variable is at least this large."""
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def uniform_p(values: Tensor) -> float:
    """The p-value of numbers under a uniform distribution in [0, 1], by their counts in twenty bins."""
    places = (values * _BINS).floor().clamp(0, _BINS - 1).long()
    counts = torch.bincount(places, minlength=_BINS).double()
    expected = values.numel() / _BINS
    return chi_square_p(float(((counts - expected) ** 2 / expected).sum()), _BINS - 1)


def share_repeated(values: Tensor) -> float:
    """The share of numbers that occur more than once, to nine digits, including 0 and 1."""
    rounded = (values * 1e9).round()
    return 1.0 - rounded.unique().numel() / max(1, rounded.numel())
