"""The mutant of F-BLACKWELL-CUBLAS-001 that is no change of a few lines."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend, ProjectionGradients
from falsifiers.blackwell.reference.cublas_path import CublasPath, LibraryBackend
from falsifiers.blackwell.reference.triton_backend import TritonBackend
from falsifiers.blackwell.subjects.cublas import Path

_CYCLES = 1_000_000  # about half a millisecond, used to measure the GPU's clock


class TakesATenthLonger(CublasPath):
    """Delays every result by a quarter of the old path's time. The seven projections are 4/7 of a backward."""

    def backend(self, path: Path, layer: int) -> Backend:
        return super().backend(path, layer) if path == "old" else _Late(self.products())


class _Late(LibraryBackend):
    _cycles: ClassVar[dict[Any, int]] = {}

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        right = super().project_backward(projection, x, weight, gradient, bias=bias)
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
