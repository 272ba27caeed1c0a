"""The subject of F-BLACKWELL-CUBLAS-001: matrix products by cuBLAS (new path) or by Triton kernels (old path)."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Literal

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend, ProjectionGradients
from falsifiers.blackwell.reference.block import Block, new_weights
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.reference.shared_cache import shared_modules
from falsifiers.blackwell.reference.torch_backend import CublasBackend, TorchBackend
from falsifiers.blackwell.reference.triton_backend import (
    TritonBackend,
    compile_elementwise,
    compile_projections,
    keep_compiled,
    loaded_modules,
)
from falsifiers.blackwell.reference.triton_kernels import only_compiling
from falsifiers.blackwell.subjects.cublas import Moved, Path
from harness import Setting


class LibraryBackend(TritonBackend):
    """Matrix products by a library; everything else as on the old path. See `Backend`."""

    def __init__(self, products: TorchBackend) -> None:
        """Args:
        products: the backend that multiplies; this backend takes its name.
        """
        super().__init__()
        self.name = products.name
        self._products = products

    def project(self, projection: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._products.project(projection, x, weight, bias)

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        return self._products.project_backward(projection, x, weight, gradient, bias=bias)

    def matmul(self, a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        return self._products.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)


class Tf32Rounding(TorchBackend):
    """TF32 products on a CPU: the factors lose 13 of 23 mantissa bits, and sums are float32. See `Backend`."""

    def matmul(self, a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        return super().matmul(_rounded(a), _rounded(b), transpose_a=transpose_a, transpose_b=transpose_b)


class CublasPath:
    """cuBLAS on CUDA, torch's products on a CPU. On the old path every layer has its own modules. See `TwoPaths`."""

    def __init__(self, setting: Setting) -> None:
        """Read the parameters. `precision` is "ieee", or "tf32", which the spec wants for speed."""
        keep_compiled(setting.cache / "triton")
        self.device = setting.device
        self.precision: Literal["ieee", "tf32"] = setting.parameters["precision"]
        self.capability = int(setting.parameters["compiled_for"])
        self.tokens = int(setting.parameters["largest_tokens"])

    def backend(self, path: Path, layer: int) -> Backend:
        return TritonBackend(layer=layer) if path == "old" else LibraryBackend(self.products())

    def products(self) -> TorchBackend:
        """The backend that multiplies matrices on the new path."""
        if self.device != "cpu":
            return CublasBackend(self.precision)
        return TorchBackend() if self.precision == "ieee" else Tf32Rounding()

    def prewarm(self, path: Path, shape: BlockShape, layers: int) -> Sequence[int]:
        """See `TwoPaths`. On CUDA by a backward of every layer, on a CPU by compiling for an absent GPU.

        Every layer has kernels of its own on the old path. So they are compiled first, many at a time.

        On a CPU only the kernels of the backward are counted, on CUDA the forward's products as well.
        """
        if self.device == "cpu":
            projections = [
                module
                for layer in range(layers if path == "old" else 0)
                for module in compile_projections(shape, self.capability, layer)
            ]
            return [module.size for module in (*compile_elementwise(self.capability), *projections)]
        x = torch.zeros(1, self.tokens, shape.hidden, device=self.device)
        weights = new_weights(shape, 0, dtype=torch.float32, device=self.device)
        for work in (only_compiling, nullcontext):
            with work():
                for layer in range(layers):
                    block = Block(shape, self.backend(path, layer))
                    block.backward(block.forward(x, weights)[1], weights, x)
        torch.cuda.synchronize()
        return [module.size for module in loaded_modules()]

    def shared_modules(self, moved: Moved, shape: BlockShape) -> Sequence[int]:
        """See `TwoPaths`: the CUDA C kernels, which use such a cache; compiled on any machine."""
        return shared_modules(shape, moved, self.capability)


def _rounded(values: Tensor) -> Tensor:
    """Float32 values rounded to 10 bits of mantissa, ties away from zero; other dtypes unchanged."""
    if values.dtype is not torch.float32:
        return values
    return ((values.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
