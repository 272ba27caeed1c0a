"""Healthy files of many tensors are read in seconds of a processor, and the budget for untrusted files suffices."""

from __future__ import annotations

import io
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tools.inspect.checkpoint.files import FORMATS
from tests.tools.inspect.checkpoint.test_bounded import outcome

COUNT = 10_000


def training_state(_: Path) -> bytes:
    """A model and the state of its optimizer, which has three more tensors for each parameter."""
    names = [f"model.layers.{number}.weight" for number in range(COUNT)]
    state = {
        number: {"step": torch.tensor(7.0), "exp_avg": torch.ones(2), "exp_avg_sq": torch.ones(2)}
        for number in range(COUNT)
    }
    groups = [{"params": list(range(COUNT)), "lr": 1e-3, "betas": (0.9, 0.95)}]
    file = io.BytesIO()
    optimizer = {"state": state, "param_groups": groups}
    torch.save({"model": {name: torch.ones(2) for name in names}, "optimizer": optimizer}, file)
    return file.getvalue()


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("name", [*FORMATS, "training state"])
def test_healthy_files_of_many_tensors(name: str, tmp_path: Path) -> None:
    """Tensors of few elements cost the most for their size."""
    arrays = {f"model.layers.{number}.weight": np.full(1, number, np.float32) for number in range(COUNT)}
    make = training_state if name == "training state" else lambda folder: FORMATS[name](arrays, folder)
    (tmp_path / "many").write_bytes(make(tmp_path))
    before = spent()
    assert outcome(tmp_path / "many") == f"read {COUNT * 4 if name == 'training state' else COUNT}"
    assert spent() - before < 30
