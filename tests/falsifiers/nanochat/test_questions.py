"""Every tensor of a falsifier's case is on the device of the trial."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from falsifiers.nanochat.compiled_loss import _question
from falsifiers.nanochat.head_loss_cases import first_cases, question


def _devices(asked: Any) -> set[str]:
    return {one.device.type for one in vars(asked).values() if isinstance(one, Tensor)}


@pytest.mark.parametrize("case", first_cases({"most_alike": 4, "past_a_step": 5}))
def test_a_case_is_on_one_device(case: dict[str, Any]) -> None:
    """The incoming gradient is on the device too, also if it is a scalar."""
    assert _devices(question(case, "meta")) == {"meta"}


@pytest.mark.parametrize("ignored", [0.0, 1.0])
def test_the_question_of_a_compiled_loss_is_on_one_device(ignored: float) -> None:
    """On an H200, a case with tensors on two devices ended the trial in the oracle."""
    trial = SimpleNamespace(parameters={"rows": 3, "width": 2, "vocabulary": 5}, seed=0, device="meta")
    asked = _question(trial, 0, ignored)  # type: ignore[arg-type]
    assert _devices(asked) == {"meta"}
    assert asked.upstream.dtype == torch.float32
