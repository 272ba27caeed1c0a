"""Realistic steps: sharded, with data, with attention, and steps that the probe must refuse."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from harness.tools.probe import ProbeError, StepFailed, Unseeable, predict
from tests.tools.probe import steps

WEIGHTS = 2 * 4 * 1024 * 1024 * 4


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_rank_holds_its_share_of_parameters_gradients_and_state(ranks: int) -> None:
    owners = predict(steps.sharded, ranks=ranks).by_owner
    assert owners["parameters"] == WEIGHTS / ranks
    assert owners["optimizer"] == pytest.approx(2 * WEIGHTS / ranks, abs=4096)


def test_one_real_rank_holds_what_two_simulated_ones_hold_together() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        step, optimizer = steps.sharded_with_optimizer(256, "cpu")
        step()
        states = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
        parameters = [param for group in optimizer.param_groups for param in group["params"]]
        held = [sum(tensor.to_local().nbytes for tensor in tensors) for tensors in (parameters, states)]
    finally:
        torch.distributed.destroy_process_group()
    owners = predict(steps.sharded, 256, ranks=2).by_owner
    assert [2 * owners["parameters"], 2 * owners["optimizer"]] == held


def test_the_shapes_of_whole_tensors_take_no_memory() -> None:
    """DTensor computes with whole tensors only to find the shapes of shards."""
    trace = predict(steps.sharded, ranks=8).trace
    largest = WEIGHTS // 2  # one gathered layer
    optimizer = [block.bytes for block in trace.blocks if block.place.phase.endswith("optimizer")]
    assert max(optimizer) == largest // 8


@pytest.mark.parametrize(("views", "copies"), [(False, 2), (True, 1)])
def test_gradients_are_held_in_buckets_too_unless_they_are_views_of_them(views: bool, copies: int) -> None:
    weights = 72 * 1024 * 1024
    phases = {each.phase: each.allocated for each in predict(steps.replicated, ranks=4, views=views).phases}
    activations = 8 * (1024 + 2048 + 8192) * 4 + 3 * 512
    for step in ("step 1", "step 2"):
        held = phases[step] - weights - 2 * 32 * 1024 * 1024
        # A gradient that becomes a view is copied into the bucket first, so the largest one is held twice for a moment.
        largest = 64 * 1024 * 1024 if views else 0
        assert 0 <= held - copies * weights - largest <= 2 * activations


def test_what_the_host_knows_decides_there() -> None:
    tied, apart = (predict(steps.loads_data, tied=tied).by_owner["parameters"] for tied in (True, False))
    assert 2 * tied == apart == 2 * 1000 * 64 * 4


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({}, "efficient"),
        ({"masked": True}, "efficient"),
        ({"autocast": True}, "cudnn"),
        ({"autocast": True, "masked": True}, "cudnn"),
    ],
)
def test_attention_is_chosen_as_on_the_device(case: dict[str, bool], expected: str, recomputed: bool) -> None:
    operators = {block.place.operator for block in predict(steps.attention, recomputed=recomputed, **case).trace.blocks}
    for pass_ in ("", "_backward"):
        assert f"aten._scaled_dot_product_{expected}_attention{pass_}.default" in operators


def test_a_mask_with_scattered_rows_leaves_explicit_scores() -> None:
    """The learned biases of T5 have scattered rows."""
    blocks = predict(steps.attention, scattered=True).trace.blocks
    assert not any("_scaled_dot_product" in block.place.operator for block in blocks)
    assert any(block.bytes == 2 * 8 * 128 * 128 * 4 for block in blocks)


def _hooked() -> Callable[[], None]:
    return steps.replicated(hook=lambda state, bucket: None)


def test_without_cudnn_attention_is_flash_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    operators = {block.place.operator for block in predict(steps.attention, autocast=True).trace.blocks}
    assert "aten._scaled_dot_product_flash_attention.default" in operators


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_gradients_of_one_tensor_are_added_as_autograd_adds_real_ones(kind: str) -> None:
    """They are added in place if nothing else holds one of them."""
    blocks = predict(steps.branches, kind).trace.blocks
    added = [each.place.operator for each in blocks if each.place.phase == "step 1, backward"]
    assert ("aten.add.Tensor" in added) == (kind == "shared")


@pytest.mark.parametrize(("padded", "attended"), [(0, 8), (3, 5)])
def test_what_follows_from_the_host_decides_on_the_device(padded: int, attended: int) -> None:
    sizes = {block.bytes for block in predict(steps.masks, padded).trace.blocks}
    assert attended * 4096 in sizes


def test_what_the_device_changed_is_not_known_any_more() -> None:
    with pytest.raises(Unseeable):
        predict(steps.masks, 3, spoiled=True)


@pytest.mark.parametrize(
    ("build", "operator"),
    [
        (_hooked, "torch.distributed._register_comm_hook"),
        (steps.launches_a_kernel, "the Triton kernel double"),
        (steps.compiles, "torch.compile"),
        (partial(steps.unseen, "recurrent"), "torch._VF.lstm"),
        (partial(steps.unseen, "cell"), "aten._thnn_fused_gru_cell.default"),
        (partial(steps.unseen, "sparse"), "aten._sparse_coo_tensor_with_dims_and_tensors.default"),
        (partial(steps.unseen, "second GPU"), "aten._to_copy.default"),
        (partial(steps.unseen, "captured"), "torch.cuda.CUDAGraph"),
        (partial(steps.unseen, "numpy"), "Tensor.numpy"),
        (partial(steps.unseen, "rows of several lengths"), "torch.nested.nested_tensor"),
    ],
)
def test_what_allocates_unseen_is_refused_with_its_line(build: Callable[[], Any], operator: str) -> None:
    with pytest.raises(Unseeable) as raised:
        predict(build, ranks=2)
    assert raised.value.operator == operator
    assert raised.value.place.startswith(steps.__file__)


def test_gradients_of_samples_are_counted() -> None:
    """Sixteen gradients of each weight are alive at the peak."""
    assert predict(steps.trains_by_samples).allocated > 16 * (64 * 64 + 64 * 8) * 4


def test_a_value_may_be_logged() -> None:
    assert predict(steps.logs_a_value).allocated == 3 * 512  # the weight, the loss, and the result of isnan


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_gradients_are_taken_to_be_finite(fused: bool) -> None:
    assert predict(steps.scales_gradients, fused=fused).by_owner["optimizer"] >= 2 * (64 * 64 + 64) * 4


def test_an_exception_of_the_step_is_its_own() -> None:
    with pytest.raises(StepFailed, match=steps.__file__) as raised:
        predict(steps.raises)
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert issubclass(StepFailed, ProbeError)
