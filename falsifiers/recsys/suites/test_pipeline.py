"""Pipelines against none, as examples/hstu/test/test_pipeline.py of recsys-examples tests them.

One run trains without overlap, and saves. Another one loads, and both train on: losses and logits are close at every
step.
"""

from pathlib import Path
from typing import Literal

import pytest
import torch

from falsifiers.recsys.reference.pipelines import Pipelines
from falsifiers.recsys.streams import streams_on
from falsifiers.recsys.training_cases import Case, batches, recipe, weights
from harness import Setting

SIZES = {"rows": 64, "width": 8, "layers": 1, "heads": 1, "head_width": 8, "users": 3, "history": 24}


@pytest.mark.parametrize("contextual_feature_names", [["user0", "user1"], []])
@pytest.mark.parametrize("max_num_candidates", [10, 0])
@pytest.mark.parametrize("optimizer_type_str", ["sgd"])
@pytest.mark.parametrize("dtype", ["float64"])
@pytest.mark.parametrize("use_dynamic_emb", [False, True])
@pytest.mark.parametrize("pipeline_type", ["native", "prefetch"])
def test_pipeline(
    pipeline_type: Literal["native", "prefetch"], contextual_feature_names: list[str], max_num_candidates: int,
    optimizer_type_str: str, dtype: str, use_dynamic_emb: bool, tmp_path: Path,
) -> None:  # fmt: skip
    """Every step has the loss and the logits of the pipeline without overlap."""
    case = Case(
        "compute", optimizer_type_str, "dense", len(contextual_feature_names), max_num_candidates // 2,
        "dynamic" if use_dynamic_emb else "static", 1234,
    )  # fmt: skip
    made = recipe(case, SIZES)
    data = batches(made, case, SIZES, 4, "cpu")
    subject = Pipelines(Setting({}, "cpu", 1234, tmp_path, tmp_path))
    plain = subject.begin("none", made, weights(made, 1234), streams_on("cpu", case.slow, 0))
    pipelined = subject.begin(pipeline_type, made, weights(made, 4321), streams_on("cpu", case.slow, 0))
    plain.train(data, 1)
    plain.save(tmp_path / "gr_checkpoint")
    pipelined.load(tmp_path / "gr_checkpoint")
    pairs = list(zip(pipelined.train(data, 3), plain.train(data, 3), strict=True))
    assert len(pairs) == 3
    for actual, expected in pairs:
        assert actual.loss.dtype == getattr(torch, dtype)
        assert torch.allclose(actual.loss, expected.loss), "reporting loss mismatch"
        assert torch.allclose(actual.logits, expected.logits), "logits mismatch"
