"""Our own CUDA C kernels as a `Backend`: chooses the kernel, the number of blocks and the arguments."""

import math

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import ProjectionGradients
from falsifiers.blackwell.reference.kernel_cache import KernelCache
from falsifiers.blackwell.reference.kernels import catalogue
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.shapes import BlockShape

_THREADS = 256
_MOST_BLOCKS = 65535
_COLUMNS = 32


class PtxBackend:
    """Works on float32 tensors on the device of the cache's kernels, on torch's current stream.

    No kernel depends on batch or sequence, so `prewarm` for a block's shape covers every step of it.
    """

    name = "ptx"

    def __init__(self, cache: KernelCache) -> None:
        """Load nothing; `prewarm` or the first launch does."""
        self.cache = cache

    def prewarm(self, shape: BlockShape) -> None:
        """Load every kernel that a block of this shape launches."""
        self.cache.prewarm(catalogue.block_kernels(shape))

    def project(self, projection: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        size_out, size_in = weight.shape
        spec = catalogue.project(projection, size_in, size_out, bias=bias is not None)
        out = x.new_empty(x.shape[0], size_out)
        self._gemm(spec, x, weight, bias, out, size_in)
        return out

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        size_out, size_in = weight.shape
        grad_x, grad_weight = torch.empty_like(x), torch.empty_like(weight)
        self._gemm(
            catalogue.project_backward_x(projection, size_in, size_out), gradient, weight, None, grad_x, size_out
        )
        self._gemm(
            catalogue.project_backward_weight(projection, size_in, size_out), gradient, x, None, grad_weight, x.shape[0]
        )
        return ProjectionGradients(grad_x, grad_weight, self._column_sum(gradient) if bias else None)

    def matmul(self, a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        rows, depth = (a.shape[-1], a.shape[-2]) if transpose_a else (a.shape[-2], a.shape[-1])
        columns = b.shape[-2] if transpose_b else b.shape[-1]
        out = a.new_empty(*a.shape[:-2], rows, columns)
        self._gemm(catalogue.matmul(transpose_a=transpose_a, transpose_b=transpose_b), a, b, None, out, depth)
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty_like(x)
        self._launch(catalogue.rms_norm(x.shape[-1], eps), _rows(x), x, weight, out)
        return out

    def rms_norm_backward(self, x: Tensor, weight: Tensor, gradient: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        hidden = x.shape[-1]
        grad_x, grad_weight, inverses = torch.empty_like(x), torch.empty_like(weight), x.new_empty(_rows(x))
        spec = catalogue.rms_norm_backward(hidden, eps)
        self._launch(spec, _rows(x), x, weight, gradient, grad_x, inverses)
        blocks = math.ceil(hidden / _COLUMNS)
        self._launch(catalogue.rms_norm_weight(hidden), blocks, x, gradient, inverses, grad_weight, _rows(x))
        return grad_x, grad_weight

    def rope(self, x: Tensor, theta: float) -> Tensor:
        return self._rotated(catalogue.rope(x.shape[-1], theta), x)

    def rope_backward(self, gradient: Tensor, theta: float) -> Tensor:
        return self._rotated(catalogue.rope_backward(gradient.shape[-1], theta), gradient)

    def causal_softmax(self, scores: Tensor, scale: float) -> Tensor:
        out = torch.empty_like(scores)
        self._launch(catalogue.causal_softmax(), _rows(scores), scores, out, scale, scores.shape[-1])
        return out

    def causal_softmax_backward(self, probabilities: Tensor, gradient: Tensor, scale: float) -> Tensor:
        out = torch.empty_like(gradient)
        spec = catalogue.causal_softmax_backward()
        self._launch(spec, _rows(gradient), probabilities, gradient, out, scale, gradient.shape[-1])
        return out

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        out = torch.empty_like(gate)
        self._launch(catalogue.silu_gate(), _spread(gate), gate, up, out, gate.numel())
        return out

    def silu_gate_backward(self, gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(up)
        spec = catalogue.silu_gate_backward()
        self._launch(spec, _spread(gate), gate, up, gradient, grad_gate, grad_up, gate.numel())
        return grad_gate, grad_up

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        out = torch.empty_like(a)
        self._launch(catalogue.add(), _spread(a), a, b, out, a.numel())
        return out

    def _rotated(self, spec: KernelSpec, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        sequence = x.shape[-2]
        self._launch(spec, sequence, x, out, _rows(x) // sequence, sequence)
        return out

    def _column_sum(self, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[1])
        self._launch(catalogue.column_sum(), math.ceil(x.shape[1] / _COLUMNS), x, out, *x.shape)
        return out

    def _gemm(self, spec: KernelSpec, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor, depth: int) -> None:
        rows, columns = out.shape[-2:]
        tile = dict(spec.constants)["TILE"]
        grid = (math.ceil(columns / tile), math.ceil(rows / tile), math.prod(out.shape[:-2]))
        if max(grid[1:]) > _MOST_BLOCKS:
            raise ValueError(f"{spec.key}: {rows} rows and a batch of {grid[2]} need more than {_MOST_BLOCKS} blocks")
        self._launch(spec, grid, a, b, bias, out, rows, columns, depth)

    def _launch(self, spec: KernelSpec, grid: int | tuple[int, int, int], *arguments: Tensor | float | None) -> None:
        for argument in arguments:
            if isinstance(argument, Tensor) and (argument.dtype is not torch.float32 or not argument.is_contiguous()):
                raise TypeError(
                    f"{spec.key} takes contiguous float32 tensors, not {argument.dtype} of {tuple(argument.shape)}"
                )
        blocks = grid if isinstance(grid, tuple) else (grid, 1, 1)
        if all(blocks):  # CUDA refuses a launch of 0 blocks, and there is nothing to compute
            self.cache.launch(spec, blocks, _THREADS, *arguments)


def _rows(x: Tensor) -> int:
    """The number of vectors along the last dimension."""
    return math.prod(x.shape[:-1])


def _spread(x: Tensor) -> int:
    """The number of blocks for one thread per element, at most _MOST_BLOCKS; threads then take several elements."""
    return min(math.ceil(x.numel() / _THREADS), _MOST_BLOCKS)
