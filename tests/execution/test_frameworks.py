"""What the harness reads from torch in a trial's process."""

from __future__ import annotations

import pytest
import torch

from harness.execution import frameworks


def test_the_peak_is_that_of_the_whole_trial_although_code_resets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak covers the whole trial, although the code resets it: a claim on memory measures several steps."""
    peaks = [300]
    for module in (torch.cuda, torch.cuda.memory):
        monkeypatch.setattr(module, "reset_peak_memory_stats", lambda device=None: peaks.__setitem__(0, 7))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: peaks[0])
    monkeypatch.setattr(frameworks, "_peaks", [0])
    seed = torch.initial_seed()
    frameworks.prepare(seed, torch.get_num_threads())
    torch.cuda.reset_peak_memory_stats()
    assert (peaks, frameworks.allocator_peak_bytes()) == ([7], 300)
