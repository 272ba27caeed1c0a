"""The errors of F-GB10-FLCE-EXACT-001: arithmetic in float32 keeps its bounds in every case that it may draw."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from torch import Tensor

from falsifiers.nanochat.compiled_loss import _question
from falsifiers.nanochat.exact_loss import _errors
from falsifiers.nanochat.head_loss_cases import HALF, cases, first_cases, question
from falsifiers.nanochat.head_question import HeadQuestion
from falsifiers.nanochat.oracle.head_loss import truth
from falsifiers.nanochat.subject import Answer

CONTRACT = json.loads(
    (Path(__file__).parents[3] / "contracts" / "nanochat" / "F-GB10-FLCE-EXACT-001" / "contract.json").read_text()
)
BOUNDS = {
    name: schema["items"]["maximum"]
    for name, schema in CONTRACT["observation"]["properties"].items()
    if "items" in schema
}
EQUAL_LOGITS = {
    "dtype": "bfloat16", "rows": 1, "vocabulary": 2, "width": 1, "scale": 10.0, "alike": False, "ignored": 0.0,
    "ignore_index": -100, "label_smoothing": 1.0, "z_loss": 0.0, "softcap": 0.0, "reduction": "mean",
    "float32_sums": True, "upstream": 1.0, "frozen": "", "seed": 1,
}  # fmt: skip
"""The softmax is the target, so that the gradient is 0 but for a rounding of float32."""


@given(
    cases({"largest_rows": 12, "largest_vocabulary": 40, "largest_width": 16}).filter(
        lambda case: case["dtype"] in HALF
    )
)
@example(EQUAL_LOGITS)
def test_arithmetic_in_float32_is_exact_enough(case: dict[str, Any]) -> None:
    """The gradient of the logits is rounded once before the products, and the products once after."""
    drawn = question(case, "cpu")
    errors = _errors(drawn, in_float32(drawn), truth(drawn))
    assert {name: error for name, error in errors.items() if not error <= BOUNDS[name]} == {}


def in_float32(drawn: HeadQuestion) -> Answer:
    """The textbook's formulas, with exponentials of logits less their logarithmic sum."""
    dtype, rows = drawn.hidden.dtype, torch.arange(len(drawn.hidden))
    raw = drawn.hidden.float() @ drawn.weight.float().T
    logits = drawn.softcap * torch.tanh(raw / drawn.softcap) if drawn.softcap else raw
    counts = drawn.targets != drawn.ignore_index
    log_sums = logits.logsumexp(-1)
    softmax = (logits - log_sums[:, None]).exp()
    targets = torch.full_like(logits, drawn.label_smoothing / logits.shape[1])
    targets[rows[counts], drawn.targets[counts]] += 1.0 - drawn.label_smoothing
    losses = (log_sums - (targets * logits).sum(-1) + drawn.z_loss * log_sums**2) * counts
    count = max(1, int(counts.sum())) if drawn.reduction == "mean" else 1
    of_logits = softmax * (1.0 + 2.0 * drawn.z_loss * log_sums[:, None]) - targets
    of_logits *= 1.0 - (logits / drawn.softcap) ** 2 if drawn.softcap else 1.0
    rounded = (of_logits * counts[:, None]).to(dtype).float() * (drawn.upstream.expand(len(rows)) / count)[:, None]
    of_hidden, of_weight = rounded @ drawn.weight.float(), rounded.T @ drawn.hidden.float()
    return Answer(
        losses if drawn.reduction == "none" else losses.sum() / count,
        (of_hidden * float(drawn.frozen != "hidden")).to(dtype),
        (of_weight * float(drawn.frozen != "weight")).to(dtype),
    )


def _devices(drawn: Any) -> set[str]:
    return {value.device.type for value in vars(drawn).values() if isinstance(value, Tensor)}


@pytest.mark.parametrize("case", first_cases({"most_alike": 4, "past_a_step": 5}))
def test_a_case_is_on_one_device(case: dict[str, Any]) -> None:
    """The incoming gradient is on the device too, also if it is a scalar."""
    assert _devices(question(case, "meta")) == {"meta"}


@pytest.mark.parametrize("ignored", [0.0, 1.0])
def test_the_question_of_a_compiled_loss_is_on_one_device(ignored: float) -> None:
    """On an H200, a case with tensors on two devices ended the trial in the oracle."""
    trial = SimpleNamespace(parameters={"rows": 3, "width": 2, "vocabulary": 5}, seed=0, device="meta")
    drawn = _question(trial, 0, ignored)  # type: ignore[arg-type]
    assert _devices(drawn) == {"meta"}
    assert drawn.upstream.dtype == torch.float32
