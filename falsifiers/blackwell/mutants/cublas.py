"""Mutants of F-BLACKWELL-CUBLAS-001, each with one defect on the new path or in the comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend, ProjectionGradients
from falsifiers.blackwell.reference.cublas_path import CublasPath, LibraryBackend, Tf32Rounding
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.reference.torch_backend import CublasBackend, TorchBackend
from falsifiers.blackwell.reference.triton_backend import TritonBackend
from falsifiers.blackwell.subjects.cublas import Moved, Path
from harness import Setting

__all__ = [
    "CublasNeverCalled",
    "OldPathBroken",
    "ScaleLeftOutOfBackward",
    "SoftmaxWithoutMaximum",
    "StillWarmsProducts",
    "TakesATenthLonger",
    "TellsOfOneModule",
    "Tf32LeftOn",
    "WarmsOneLayerLess",
    "WrongInLongBatches",
]

_CYCLES = 1_000_000  # about half a millisecond, used to measure the GPU's clock


class _Damaging(CublasPath):
    """A subject whose new path damages its results."""

    def backend(self, path: Path, layer: int) -> Backend:
        return super().backend(path, layer) if path == "old" else _Damaged(self.products(), self.damage)

    def damage(self, right: ProjectionGradients, x: Tensor, weight: Tensor, gradient: Tensor) -> ProjectionGradients:
        """The wrong gradients in place of the right ones."""
        raise NotImplementedError


class _Damaged(LibraryBackend):
    def __init__(self, products: TorchBackend, damage: Callable[..., ProjectionGradients]) -> None:
        super().__init__(products)
        self._damage = damage

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        right = super().project_backward(projection, x, weight, gradient, bias=bias)
        return self._damage(right, x, weight, gradient)


class Tf32LeftOn(CublasPath):
    """TF32 was switched on and never off again."""

    def products(self) -> TorchBackend:
        return Tf32Rounding() if self.device == "cpu" else CublasBackend("tf32")


class WrongInLongBatches(_Damaging):
    """The weight's gradient is 1 % too large if there are more tokens than were warmed up."""

    def damage(self, right: ProjectionGradients, x: Tensor, weight: Tensor, gradient: Tensor) -> ProjectionGradients:
        return right._replace(weight=right.weight * 1.01) if len(x) > self.tokens else right


class OldPathBroken(CublasPath):
    """The old path, which the new one is compared with, loses the last token."""

    def backend(self, path: Path, layer: int) -> Backend:
        return super().backend(path, layer) if path == "new" else _LosesLastToken(layer=layer)


class _LosesLastToken(TritonBackend):
    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        cut = gradient.clone()
        cut[-1] = 0.0
        return super().project_backward(projection, x, weight, cut, bias=bias)


class CublasNeverCalled(CublasPath):
    """The new path still runs the old kernels."""

    def backend(self, path: Path, layer: int) -> Backend:
        return super().backend("old", layer)


class StillWarmsProducts(CublasPath):
    """cuBLAS multiplies matrices, but the unused kernels are still warmed up."""

    def prewarm(self, path: Path, shape: BlockShape, layers: int) -> Sequence[int]:
        return super().prewarm("old", shape, layers)

    def shared_modules(self, moved: Moved, shape: BlockShape) -> Sequence[int]:
        return super().shared_modules("nothing", shape)


class TellsOfOneModule(CublasPath):
    """Warms up all kernels as before, and reports one."""

    def prewarm(self, path: Path, shape: BlockShape, layers: int) -> Sequence[int]:
        warmed = super().prewarm("old", shape, layers)
        return warmed if path == "old" else warmed[:1]


class WarmsOneLayerLess(CublasPath):
    """The last layer is not warmed up."""

    def prewarm(self, path: Path, shape: BlockShape, layers: int) -> Sequence[int]:
        return super().prewarm(path, shape, layers - 1)


class SoftmaxWithoutMaximum(CublasPath):
    """Both paths share a softmax that overflows at large scores."""

    def backend(self, path: Path, layer: int) -> Backend:
        return _with(super().backend(path, layer), causal_softmax=_plain_softmax)


class ScaleLeftOutOfBackward(CublasPath):
    """The backward that both paths share forgets the scale of the scores."""

    def backend(self, path: Path, layer: int) -> Backend:
        backward = TorchBackend().causal_softmax_backward
        return _with(super().backend(path, layer), causal_softmax_backward=lambda p, g, scale: backward(p, g, 1.0))


def _with(backend: Backend, **operations: Callable[..., Tensor]) -> Backend:
    """The backend with other operations."""
    vars(backend).update(operations)
    return backend


def _plain_softmax(scores: Tensor, scale: float) -> Tensor:
    rows, keys = scores.shape[-2:]
    seen = torch.arange(keys, device=scores.device) <= torch.arange(rows, device=scores.device).remainder(keys)[:, None]
    raised = (scale * scores).exp() * seen
    return raised / raised.sum(dim=-1, keepdim=True)


class TakesATenthLonger(_Damaging):
    """Delays every result by a quarter of the old path's time. The seven projections are 4/7 of a backward."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._cycles: dict[Any, int] = {}

    def damage(self, right: ProjectionGradients, x: Tensor, weight: Tensor, gradient: Tensor) -> ProjectionGradients:
        bias = right.bias is not None
        key = (x.shape, weight.shape, x.dtype, bias)
        if key not in self._cycles:
            old = TritonBackend(layer=0)
            takes = _milliseconds(lambda: old.project_backward("q", x, weight, gradient, bias=bias))
            self._cycles[key] = round(0.25 * takes / _milliseconds(lambda: torch.cuda._sleep(_CYCLES)) * _CYCLES)
        torch.cuda._sleep(self._cycles[key])
        return right


def _milliseconds(work: Callable[[], object]) -> float:
    """Time of `work` on the GPU in milliseconds: the shortest of five runs after one warm-up."""
    seen = []
    for _ in range(6):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        seen.append(start.elapsed_time(end))
    return min(seen[1:])
