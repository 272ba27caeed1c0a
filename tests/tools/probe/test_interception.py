"""Tensors without memory are ordinary ones to torch: its formulas and its engine do what they do on a device."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.tools.probe import Unseeable, predict

KIB = 1024
Step = Callable[[], Any]


def _sizes(build: Callable[..., Step], phase: str, *, least: int) -> list[int]:
    """The sizes of the blocks of a phase, from `least` bytes on."""
    blocks = predict(build).trace.blocks
    return [each.bytes for each in blocks if each.place.phase == phase and each.bytes >= least]


def test_a_process_may_have_run_backward_before() -> None:
    """The engine has started its threads then, none on a machine without a GPU. One for the device is added."""

    def build() -> Step:
        weight = torch.ones(256, 256, device="cuda", requires_grad=True)
        return lambda: weight.square().sum().backward()

    torch.ones(2, requires_grad=True).sum().backward()
    assert predict(build).allocated >= 256 * KIB


def test_a_gradient_by_index_is_added_in_place() -> None:
    """With tensors that torch takes for no ordinary ones, it is added to a copy of the zeros."""

    def build() -> Step:
        table, rows = torch.randn(256, 256, device="cuda", requires_grad=True), torch.arange(4, device="cuda")
        return lambda: table[rows].sum().backward()

    assert _sizes(build, "step 1, backward", least=256 * KIB) == [256 * KIB]


def test_backward_runs_in_the_thread_of_the_device() -> None:
    """Nodes are numbered by thread, which decides their order when a graph is differentiated again."""
    threads = set()

    def build() -> Step:
        weight = torch.randn(8, device="cuda", requires_grad=True)
        weight.register_hook(lambda _: threads.add(threading.get_ident()))
        return lambda: weight.sum().backward()

    place = predict(build).place
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert place.line.startswith(__file__)


def test_the_line_of_an_operator_in_backward_is_that_of_the_caller() -> None:
    def build() -> Step:
        weight = torch.randn(256, 256, device="cuda", requires_grad=True)
        return lambda: weight.sin().sum().backward()

    blocks = predict(build).trace.blocks
    lines = {each.place.line for each in blocks if each.place.phase == "step 1, backward"}
    assert [line.startswith(__file__) for line in lines] == [True]


def test_zeros_of_forward_mode_take_no_memory() -> None:
    """The derivative of the bias is zero."""

    def build() -> Step:
        layer, x = torch.nn.Linear(256, 256, device="cuda"), torch.randn(256, 256, device="cuda")
        return lambda: torch.func.jvp(layer, (x,), (x,))

    operators = {each.place.operator for each in predict(build).trace.blocks}
    assert "aten._efficientzerotensor.default" not in operators


def test_a_conjugate_takes_no_memory_until_it_is_read() -> None:
    def build() -> Step:
        x = torch.randn(64, 64, device="cuda", dtype=torch.complex64)
        return lambda: x.conj().T.view(-1)[:8] if x.is_conj() else x.conj()[:8]

    assert _sizes(build, "step 1, forward", least=KIB) == []


def test_the_backward_of_softmax_holds_a_product() -> None:
    def build() -> Step:
        x = torch.randn(256, 256, device="cuda", requires_grad=True)
        return lambda: x.softmax(-1).mul(2).sum().backward()

    found = predict(build).trace.blocks
    sizes = [each.bytes for each in found if "_softmax_backward_data" in each.place.operator]
    assert sizes[:2] == [256 * KIB] * 2


def test_what_an_operator_makes_in_turn_is_counted() -> None:
    """A roll of two dimensions makes one of the first; a loss of logits makes what its formula does."""

    def build(rolls: bool) -> Step:
        x, y = (torch.randn(256, 256, device="cuda") for _ in range(2))
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        return lambda: torch.roll(x, (1, 2), (0, 1)) if rolls else loss(x, y)

    assert _sizes(partial(build, rolls=True), "step 1, forward", least=KIB) == [256 * KIB] * 2
    assert _sizes(partial(build, rolls=False), "step 1, forward", least=KIB).count(256 * KIB) >= 2


def test_a_fold_keeps_the_memory_of_its_patches() -> None:
    def build() -> Step:
        patches = torch.randn(1, 64 * 9, 1024, device="cuda")
        return lambda: torch.nn.functional.fold(patches, (32, 32), 3, padding=1)

    assert 9 * 256 * KIB in _sizes(build, "step 1, forward", least=KIB)


def test_an_operator_without_a_formula_for_fake_tensors_is_named() -> None:
    """None is run on real tensors, which a CUDA build of torch would make on a GPU."""

    def build() -> Step:
        cell, x = torch.nn.GRUCell(64, 64, device="cuda"), torch.randn(8, 64, device="cuda")
        return lambda: cell(x)

    with pytest.raises(Unseeable, match="_thnn_fused_gru_cell"):
        predict(build)


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_step_may_initialize_its_process_group(ranks: int) -> None:
    sizes = []

    def build() -> Step:
        store = f"file://{tempfile.mkdtemp()}/store"
        torch.distributed.init_process_group("nccl", init_method=store, rank=0, world_size=ranks)
        sizes.append(torch.distributed.get_world_size())
        x = torch.randn(8, device="cuda")
        return lambda: torch.distributed.all_reduce(x)

    predict(build, ranks=ranks)
    assert sizes == [ranks]
    assert not torch.distributed.is_initialized()


def test_a_formula_finds_no_zeros_and_a_step_may_not_look_for_them() -> None:
    def build(looks: bool) -> Step:
        x = torch.randn(8, 8, device="cuda", requires_grad=True)

        def step() -> None:
            found: Tensor = x.cumprod(0).sum() + x.prod(1).sum()
            found.backward()  # type: ignore[no-untyped-call]
            if looks and (x == 0).any():
                raise ValueError

        return step

    assert predict(build, looks=False).allocated > 0
    with pytest.raises(Unseeable):
        predict(build, looks=True)


def test_what_has_no_memory_is_not_read() -> None:
    def build(read: Callable[[Tensor], Any]) -> Step:
        x = torch.randn(8)
        return lambda: (torch.zeros(8, device="cuda"), read(x))

    reads: list[Callable[[Tensor], Any]] = [lambda x: x.tolist(), lambda x: x.numpy()]
    for read in reads:
        with pytest.raises(Unseeable):
            predict(build, read)


def test_torch_initializes_the_device_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a real run in this process would find no statistics of memory."""

    def build() -> Step:
        x = torch.zeros(8, device="cuda")
        return lambda: x + 1

    def initialize() -> None:
        raise KeyError("initialized")

    predict(build)
    monkeypatch.setattr(torch.cuda, "_lazy_init", initialize)
    with pytest.raises(KeyError, match="initialized"):
        torch.zeros(8, device="cuda")


def test_data_of_the_host_is_copied_and_known() -> None:
    def build() -> Step:
        mask = torch.tensor([1, 0, 1], device="cuda")
        more = torch.as_tensor([2, 3], device="cuda")
        assert mask.tolist() == [1, 0, 1]
        assert more.new_tensor([4]).item() == 4
        return lambda: torch.zeros(int(mask.sum()) * KIB, device="cuda")

    assert _sizes(build, "step 1, forward", least=KIB) == [8 * KIB]
