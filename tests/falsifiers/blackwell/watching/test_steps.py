"""The watch on products and child processes during a subject's steps."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import torch

from falsifiers.blackwell.faults.backward import FaultyBackend
from falsifiers.blackwell.reference.torch_backend import TorchBackend
from falsifiers.blackwell.watching.fallback import Witness
from falsifiers.blackwell.watching.steps import watching_steps


def test_products_of_forward_and_backward_are_counted() -> None:
    """One product is counted in the forward pass, two in autograd's backward, and none outside."""
    x, weight = torch.ones(3, 4), torch.ones(4, 5, requires_grad=True)
    before = x @ weight
    with watching_steps() as seen:
        (x.requires_grad_() @ weight).sum().backward()
    assert before.shape == (3, 5)
    assert seen.products == 3
    assert seen.children == []


def test_a_child_process_is_seen_inside_the_block_only() -> None:
    """A child process is recorded with its program. After the block none is recorded."""
    with watching_steps() as seen:
        subprocess.run([sys.executable, "-c", ""], check=True)
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert len(seen.children) == 1
    assert sys.executable in seen.children[0]


def test_what_was_made_before_a_fault_is_held_or_let_go() -> None:
    """A tensor counts as long as it is referenced."""
    backend = FaultyBackend(TorchBackend(), Witness())
    backend.fail(lambda tensor: torch.OutOfMemoryError("injected"), after=2)
    kept = backend.add(torch.ones(2), torch.ones(2))
    backend.add(kept, kept)
    with pytest.raises(torch.OutOfMemoryError):
        backend.add(kept, kept)
    gc.collect()
    assert backend.held() == 1
    del kept
    assert backend.held() == 0
