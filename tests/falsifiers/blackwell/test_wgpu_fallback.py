"""A block that falls back to WGSL: its triggers, its warning, and the errors for which it does not fall back."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.block import Block, Saved, new_weights
from falsifiers.blackwell.reference.cuda_device import DriverError
from falsifiers.blackwell.reference.kernels.nvrtc import CompilationFailed
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.shapes import SHAPES
from falsifiers.blackwell.reference.torch_backend import TorchBackend
from harness import Setting
from harness.authoring.reports import Measured, Resolved, TrialReport
from harness.contract.entry_point import resolve
from harness.contract.project import Project
from harness.execution.worker_trial import WorkerTrial
from tests.falsifiers.blackwell.adapters import any_backend
from tests.falsifiers.planted import planted

wgpu = pytest.importorskip("wgpu", reason="the package wgpu is not installed (extra wgpu)")

from falsifiers.blackwell import wgpu_fallback as falsifier  # noqa: E402
from falsifiers.blackwell.reference.fallback import Fallback, FallbackBlock  # noqa: E402
from falsifiers.blackwell.reference.wgpu_backend import WgpuBackend  # noqa: E402

SHAPE = SHAPES["qwen2-tiny"]
CONTRACT = Project.find(Path(__file__).parent).contract("F-BLACKWELL-WGPU-FALLBACK-001")


class Failing(TorchBackend):
    """A backend whose backward raises after its first operation."""

    def __init__(self, make_error: Callable[[], BaseException]) -> None:
        self.make_error = make_error
        self.partial: list[weakref.ref[Tensor]] = []

    def silu_gate_backward(self, gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Record the partial result, and fail."""
        self.partial.append(weakref.ref(gradient))
        raise self.make_error()


@pytest.fixture(scope="module")
def backend() -> WgpuBackend:
    """One device for the module."""
    return any_backend()


@pytest.fixture
def layer() -> tuple[dict[str, Tensor], Saved, Tensor, dict[str, Tensor]]:
    """Weights, saved activations, an incoming gradient, and the expected gradients."""
    weights = new_weights(SHAPE, 1, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    x, gradient = (torch.randn(2, 9, SHAPE.hidden, generator=generator) for _ in range(2))
    healthy = Block(SHAPE, TorchBackend())
    _, saved = healthy.forward(x, weights)
    of_x, of_weights = healthy.backward(saved, weights, gradient)
    return weights, saved, gradient, {"x": of_x, **of_weights}


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("2 GiB"),
        CompilationFailed("no such target"),
        DriverError("loading", "CUDA_ERROR_OUT_OF_MEMORY"),
        DriverError("loading", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        torch.AcceleratorError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
    ids=repr,
)
def test_the_backward_goes_on_in_wgsl(
    backend: WgpuBackend, layer: Any, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    weights, saved, gradient, expected = layer
    before = backend.device.dispatches
    block = FallbackBlock(SHAPE, Failing(lambda: error), backend, layer=7)
    for _ in range(2):
        of_x, of_weights = block.backward(saved, weights, gradient)
        found = {"x": of_x, **of_weights}
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-5)
    assert backend.device.dispatches > before
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.args == (7, f"{type(error).__name__}: {error}")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        RuntimeError("CUDA error: illegal memory access"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`"),
        DriverError("launching", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        MemoryError("out of memory"),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_other_errors_come_out_as_they_were(
    backend: WgpuBackend, layer: Any, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    weights, saved, gradient, _ = layer
    before = backend.device.dispatches
    with pytest.raises(type(error)) as raised:
        FallbackBlock(SHAPE, Failing(lambda: error), backend, layer=0).backward(saved, weights, gradient)
    assert raised.value is error
    assert backend.device.dispatches == before
    assert not caplog.records


def test_what_was_computed_before_the_fault_is_freed_first(backend: WgpuBackend, layer: Any) -> None:
    """Partial results must be freed before the fallback, because memory is short."""
    weights, saved, gradient, _ = layer
    alive: list[bool] = []
    primary = Failing(lambda: torch.OutOfMemoryError("full"))

    class Watching(FallbackBlock):
        def _backward_on_wgpu(self, *arguments: Any) -> Any:
            alive.append(any(reference() is not None for reference in primary.partial))
            return super()._backward_on_wgpu(*arguments)

    gc.disable()  # no collection may be needed to free them
    try:
        Watching(SHAPE, primary, backend, layer=0).backward(saved, weights, gradient)
    finally:
        gc.enable()
    assert alive == [False]


def test_a_training_step_survives(backend: WgpuBackend) -> None:
    """With autograd, every gradient equals that of a model without a fault."""
    tokens = torch.randint(32, (2, 12), generator=torch.Generator().manual_seed(3))
    primary = Failing(lambda: torch.OutOfMemoryError("full"))
    blocks = [FallbackBlock(SHAPE, primary, backend, layer) for layer in range(2)]
    model = LanguageModel(SHAPE, blocks, 32, seed=5, device=torch.device("cpu"))
    healthy = LanguageModel(SHAPE, [Block(SHAPE, TorchBackend())] * 2, 32, seed=5, device=torch.device("cpu"))
    for either in (model, healthy):
        either.loss(tokens).backward()
    expected = dict(healthy.named_parameters())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name].grad, rtol=1e-4, atol=1e-6)


def measured(subject: Any, folder: Path) -> dict[str, Any]:
    """The measurements of a subject in this process, at the smallest size."""
    small = {"model": "qwen2-tiny", "layers": 2, "batch": 1, "sequence": 6, "vocabulary": 16, "places": 4}
    setting = Setting({**CONTRACT.profiles["reduced"].parameters, **small}, "cpu", 0, folder, folder)
    seen: dict[str, Any] = {}

    def record(said: TrialReport) -> None:
        if isinstance(said, Measured | Resolved):
            seen.update(said.values)

    WorkerTrial(setting, folder, CONTRACT.measurements, record).run(resolve(CONTRACT.falsifier), subject)
    return seen


def of_mutant(name: str, folder: Path) -> dict[str, Any]:
    """The measurements of a mutant, without the cases that only use WGSL: they take most of a trial."""
    (mutant,) = (mutant for mutant in CONTRACT.mutants if mutant.id == name)
    with planted(mutant):
        import_module(falsifier.__name__).errors_in_wgsl = lambda trial: [0.0]  # type: ignore[attr-defined]
        return measured(resolve(CONTRACT.subject), folder)


def test_the_falsifier_finds_nothing_wrong_with_the_reference(backend: WgpuBackend, tmp_path: Path) -> None:
    seen = measured(Fallback, tmp_path)
    assert max(seen["block_errors"] + seen["step_errors"] + seen["step_errors_relative"]) < 1e-5
    assert max(seen["wgsl_errors"]) < 1e-4
    assert min(seen["launches_by_fault"]) >= 18
    assert max(seen["kept_on_wgpu"]) == 0
    for nothing in (
        "launches_without_fault",
        "primary_calls_after_fault",
        "primary_calls_missing",
        "torch_products_after_fault",
        "warnings_too_many",
        "work_after_other_errors",
    ):
        assert set(seen[nothing]) == {0}
    assert seen["changed_errors"] == seen["wrong_adapters"] == []
    assert (seen["device"], seen["backend"], seen["dtype"]) == ("cpu", "wgpu", "float32")
    assert seen["adapters"] == [backend.device.name]


@pytest.fixture
def no_wgsl_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the cases that only use WGSL. They take most of a trial, and the reference's test has them."""
    monkeypatch.setattr(falsifier, "errors_in_wgsl", lambda trial: [0.0])


def test_the_falsifier_sees_who_computed(backend: WgpuBackend, tmp_path: Path) -> None:
    """A fallback that computes right gradients on another device is detected."""
    seen = of_mutant("computes-on-the-cpu", tmp_path)
    assert max(seen["block_errors"]) < 1e-5
    assert max(seen["launches_by_fault"]) == 0
    assert min(seen["torch_products_after_fault"]) >= 18
    assert seen["backend"] == "none"


def test_the_falsifier_counts_warnings(backend: WgpuBackend, tmp_path: Path) -> None:
    assert min(of_mutant("keeps-quiet", tmp_path)["warnings_too_many"]) < 0
    assert max(of_mutant("warns-per-call", tmp_path)["warnings_too_many"]) > 0


class _ToldByNumber(FallbackBlock):
    told: ClassVar[set[int]] = set()

    def _warn(self, reason: str) -> None:
        if self.layer not in self.told:
            super()._warn(reason)
        self.told.add(self.layer)


class ToldByNumber(Fallback):
    """Records the layers it has warned about for the whole process."""

    def block(self, layer: int, primary: Backend) -> Block:
        """Make a block that asks the record."""
        return _ToldByNumber(self._shape, primary, self._wgpu, layer)


@pytest.mark.usefixtures("no_wgsl_alone")
def test_a_layer_may_be_told_by_its_number(backend: WgpuBackend, tmp_path: Path) -> None:
    """The claim requires one warning for each layer, and every layer has its own number."""
    assert set(measured(ToldByNumber, tmp_path)["warnings_too_many"]) == {0}


def test_the_falsifier_sees_what_a_fallback_remembers(backend: WgpuBackend, tmp_path: Path) -> None:
    cool = of_mutant("cools-down", tmp_path)
    assert max(cool["launches_without_fault"]) > 0 < max(cool["primary_calls_missing"])
    assert max(of_mutant("leaks-uploads", tmp_path)["kept_on_wgpu"]) > 0.1
    assert max(of_mutant("turns-as-for-the-first", tmp_path)["block_errors"]) > 1e-3


def test_the_falsifier_sees_one_layer_among_others(backend: WgpuBackend, tmp_path: Path) -> None:
    """One of two layers is computed on another device, or a gradient has another dtype."""
    assert min(of_mutant("last-layer-on-the-cpu", tmp_path)["launches_by_fault"]) == 0
    assert of_mutant("widens-biases", tmp_path)["dtype"] == "float32+float64"


def test_the_hosts_memory_is_none_of_cudas(backend: WgpuBackend, tmp_path: Path) -> None:
    changed = of_mutant("swallows-host-memory", tmp_path)["changed_errors"]
    assert {text.split()[0] for text in changed} == {"MemoryError", "RuntimeError"}
