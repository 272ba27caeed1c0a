"""Predictions agree with counts by hand."""

import pytest
import torch

from harness.tools.probe import ProbeError, Unseeable, predict
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
