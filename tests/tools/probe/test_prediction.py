"""Predictions agree with counts by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.tools.probe import AllocatorSettings, Fit, Prediction, ProbeError, Unseeable, predict, verdict
from harness.tools.probe.device_table import device_named
from harness.tools.probe.prediction import examined
from harness.tools.probe.trace import Block, Place, Trace
from tests.tools.probe import steps

MIB = 1024**2
WORKSPACE = 32 * MIB  # torch's workspace for each cuBLAS handle on compute capability 9.0
WEIGHTS = 2 * 4 * 1024 * 1024 * 4  # two matrices of 4096 x 1024 in float32


def test_each_owner_holds_what_a_count_by_hand_gives() -> None:
    peak = predict(steps.mlp, batch=64, fused=True)
    assert peak.by_owner["parameters"] == WEIGHTS
    assert peak.by_owner["optimizer"] == 2 * WEIGHTS + 2 * 512  # two moments, and two counters of steps
    assert peak.by_owner["inputs"] == 64 * 1024 * 4
    assert peak.by_owner["workspaces"] == 2 * WORKSPACE
    assert peak.by_owner["buffers"] == 0
    assert sum(peak.by_owner.values()) == sum(peak.by_module.values()) == peak.allocated


def test_foreach_holds_a_copy_of_the_weights_at_its_peak() -> None:
    fused, foreach, single = (
        predict(steps.mlp, fused=fused, foreach=foreach)
        for fused, foreach in ((True, None), (None, None), (None, False))
    )
    assert foreach.place.phase == "step 1, optimizer"
    assert foreach.by_owner["temporaries"] == WEIGHTS
    # The root of a second moment, the quotient, and the quotient of the weight before, which the loop still holds.
    assert single.by_owner["temporaries"] == 3 * WEIGHTS // 2
    assert fused.allocated < foreach.allocated


def test_the_activations_of_a_step_are_those_that_autograd_saves() -> None:
    small, large = (predict(steps.mlp, batch=batch, fused=True) for batch in (4096, 8192))
    # At the peak, in backward: the first layer's result, the GELU's result or its gradient, and that result's gradient.
    assert "backward" in large.place.phase
    rows = 4096 * 4096 * 4
    inputs = 4096 * 1024 * 4
    assert (large.allocated - small.allocated - inputs) % (rows // 4) == 0


def test_the_first_step_creates_the_optimizer_and_the_second_holds_it() -> None:
    build, first, second = predict(steps.mlp, batch=4096, fused=True).phases
    assert build.allocated == WEIGHTS + 4096 * 1024 * 4
    assert second.allocated - first.allocated == 2 * WEIGHTS + 2 * 512


def test_what_backward_returns_is_freed_before_the_next_one() -> None:
    """The engine's thread frees a gradient late if it must wait for Python's lock, which a Python function causes."""
    assert len({predict(steps.dropped_gradients, times=times).allocated for times in (1, 20)}) == 1


def test_the_line_of_the_peak_is_in_the_step() -> None:
    place = predict(steps.mlp).place
    file, _, line = place.line.rpartition(":")
    assert file == steps.__file__
    assert int(line) > 0


def test_what_cannot_be_seen_is_named_with_its_line() -> None:
    with pytest.raises(Unseeable) as raised:
        predict(steps.reads_a_value)
    assert raised.value.operator == "aten._local_scalar_dense.default"
    assert raised.value.place.startswith(steps.__file__)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ProbeError):
        predict(steps.mlp, device="abacus")


def test_torch_is_afterwards_as_it_was() -> None:
    predict(steps.mlp)
    assert torch.cuda.is_available() == (torch.cuda.device_count() > 0)
    assert not isinstance(torch.zeros(1), torch._subclasses.FakeTensor)


def _step() -> Prediction:
    return predict(steps.mlp, batch=4096)


def test_the_margin_is_unknown_and_its_sides_are_not() -> None:
    prediction = _step()
    needed = next(
        size for size in range(prediction.allocated // 8, 4 * prediction.reserved, MIB)
        if verdict(prediction, size, context=0).fit is not Fit.DOES_NOT_FIT
    )  # fmt: skip
    verdicts = [verdict(prediction, int(needed * factor), context=0).fit for factor in (0.98, 1.02, 1.05, 1.15)]
    assert verdicts == [Fit.DOES_NOT_FIT, Fit.UNKNOWN, Fit.UNKNOWN, Fit.FITS]


def test_memory_of_which_nothing_is_known_is_no_fit() -> None:
    prediction = predict(steps.convolves)
    assert prediction.trace.unmeasured == {"aten::convolution", "aten::convolution_backward"}
    assert verdict(prediction).fit is Fit.UNKNOWN
    assert verdict(prediction, 1, context=0).fit is Fit.DOES_NOT_FIT


def test_the_buffers_of_a_sort_are_counted() -> None:
    prediction = predict(steps.sorts)
    # The keys, the sorted ones with positions, positions once more, and cub's second buffer of keys and positions.
    counted = (4 + 12 + 8 + 12) * 1000 * 1000
    assert counted <= prediction.allocated < counted + MIB
    assert verdict(prediction).fit is Fit.FITS


def test_the_context_is_not_the_allocators() -> None:
    prediction = _step()
    assert verdict(prediction, 2 * prediction.reserved, context=0).fit is Fit.FITS
    assert verdict(prediction, 2 * prediction.reserved, context=2 * prediction.reserved).fit is Fit.DOES_NOT_FIT


def test_what_the_allocator_gives_back_makes_a_step_fit_below_its_peak() -> None:
    trace = Trace(starts=[("build", 0)])
    place = Place("build", "aten.empty", "", "", "")
    trace.free(trace.allocate(Block(30 * MIB, place, "")))
    trace.allocate(Block(36 * MIB, place, ""))
    prediction = examined(trace, device_named("H200"), AllocatorSettings())
    assert (prediction.allocated, prediction.reserved) == (36 * MIB, 66 * MIB)
    tight = verdict(prediction, 45 * MIB, context=0)
    assert (tight.fit, tight.retries) == (Fit.FITS, 1)


def test_a_step_that_fits_for_some_addresses_of_segments_alone_is_unknown() -> None:
    """Of two free blocks of one size the lower is taken, and that of the larger segment keeps it from being whole."""
    trace = Trace(starts=[("build", 0)])
    place = Place("build", "aten.empty", "", "", "")
    small, large = (trace.allocate(Block(size * MIB, place, "")) for size in (64, 128))
    trace.free(large)
    half = trace.allocate(Block(64 * MIB, place, ""))
    trace.free(small)
    trace.allocate(Block(64 * MIB, place, ""))
    trace.free(half)
    trace.allocate(Block(128 * MIB, place, ""))
    prediction = examined(trace, device_named("H200"), AllocatorSettings())
    assert prediction.reserved == 320 * MIB
    fits = [verdict(prediction, capacity * MIB, context=0).fit for capacity in (180, 220, 280)]
    assert fits == [Fit.DOES_NOT_FIT, Fit.UNKNOWN, Fit.FITS]


ROWS = [{"input_ids": torch.arange(16), "labels": torch.arange(16)} for _ in range(8)]


def _options(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder), "max_steps": 1, "per_device_train_batch_size": 4, "report_to": [],
        "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1, "optim": "adamw_torch",
    }  # fmt: skip


def _model() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen2Config(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config)


def _with_transformers(folder: Path) -> Callable[[], Any]:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    trainer = transformers.Trainer(
        model=_model(), args=transformers.TrainingArguments(**_options(folder)), train_dataset=ROWS
    )
    return lambda: trainer.train()


def test_its_train_is_a_step(tmp_path: Path) -> None:
    weights = sum(parameter.numel() * 4 for parameter in _model().parameters())
    owners = predict(_with_transformers, tmp_path).by_owner
    assert weights <= owners["parameters"] <= weights + 4096  # blocks are multiples of 512 bytes
    assert 2 * weights <= owners["optimizer"] <= 2 * weights + 16384
