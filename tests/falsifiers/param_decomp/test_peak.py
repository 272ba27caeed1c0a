"""Storages are counted until they are freed, whatever operation returned them."""

from __future__ import annotations

import pytest
import torch

from falsifiers.param_decomp.peak import LiveStorage, TooMuch


def test_what_lives_at_once_is_the_peak() -> None:
    """The peak is two of three tensors. A storage that was freed before does not count."""
    with LiveStorage() as storage:
        first = torch.ones(1000)
        second = first + 1
        del first
        third = second * 2
    assert storage.peak == 8000
    assert storage.live == 8000
    del second, third
    assert storage.live == 0


def test_views_and_results_in_place_are_no_new_storage() -> None:
    """Views, results in place, and storages from before the block do not count."""
    old = torch.ones(1000)
    with LiveStorage() as storage:
        old.add_(1).reshape(10, 100).mul_(2)
        old[:5].zero_()
    assert storage.peak == 0


def test_the_backward_pass_counts() -> None:
    """The gradient of a leaf stays alive."""
    leaf = torch.ones(1000, requires_grad=True)
    with LiveStorage() as storage:
        (leaf * leaf).sum().backward()
    assert storage.peak >= 8000
    assert storage.live == 4000


def test_an_operation_beyond_the_cap_is_refused() -> None:
    """An operation that reaches the cap exactly is allowed."""
    with LiveStorage(4000):
        torch.ones(1000)
    with pytest.raises(TooMuch), LiveStorage(3999):
        torch.ones(1000)
