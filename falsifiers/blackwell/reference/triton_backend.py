"""The old path in Triton: our own matrix products and element-wise kernels; norms, RoPE and softmax of torch.

Needs the package triton (extra `triton`). On CPU tensors the kernels run in Triton's interpreter: slowly, but exactly
enough to find a wrong index or a dropped tail without a GPU.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import ProjectionGradients
from falsifiers.blackwell.reference.shapes import PROJECTIONS, BlockShape
from falsifiers.blackwell.reference.torch_backend import TorchBackend
from falsifiers.blackwell.reference.triton_kernels import (
    ADD,
    PRODUCT,
    PROJECTION_BACKWARD,
    SILU_GATE,
    SILU_GATE_BACKWARD,
    Kernel,
    Module,
)

_ELEMENTS = 1024
_SHARED = -1
_BLOCKS = {"cuda": (64, 16), "cpu": (128, 128)}
"""Edge of a tile, and step along the inner dimension. The interpreter's cost depends on the number of programs."""


class TritonBackend(TorchBackend):
    """See `Backend`. Tensors that are not row-major are copied first."""

    name = "triton"

    def __init__(self, precision: Literal["ieee", "tf32"] = "ieee", layer: int = _SHARED) -> None:
        """Args:
        layer: makes modules of its own for each projection, as the code had that SPEC-BLACKWELL-FIX-001 speaks of;
            without it all layers and all projections that are alike share one.
        """
        self.precision = precision
        self.layer = layer

    def project(self, projection: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _product(x, weight.mT, bias, self.precision)

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        """See `Backend`; one launch."""
        x, weight, gradient = _by_row(x), _by_row(weight), _by_row(gradient)
        (tokens, size_in), size_out = x.shape, len(weight)
        grad_x, grad_weight = x.new_empty(tokens, size_in), weight.new_empty(size_out, size_in)
        grad_bias = gradient.new_empty(size_out) if bias else None
        block, block_k = _BLOCKS[x.device.type]
        tiles = (_ceiling(tokens, block) + _ceiling(size_out, block)) * _ceiling(size_in, block)
        PROJECTION_BACKWARD.launch(
            (tiles,), x.device.type,
            x, weight, gradient, grad_x, grad_weight, gradient if grad_bias is None else grad_bias,
            tokens, size_in, size_out, x.stride(0), weight.stride(0), gradient.stride(0),
            layer=self.layer, projection=_own(self.layer, projection), sum_bias=bias, precision=self.precision,
            block=block, block_k=block_k,
        )  # fmt: skip
        return ProjectionGradients(grad_x, grad_weight, grad_bias)

    def matmul(self, a: Tensor, b: Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
        return _product(a.mT if transpose_a else a, b.mT if transpose_b else b, None, self.precision)

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return _each(SILU_GATE, (gate, up), 1)[0]

    def silu_gate_backward(self, gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        grad_gate, grad_up = _each(SILU_GATE_BACKWARD, (gate, up, gradient), 2)
        return grad_gate, grad_up

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return _each(ADD, (a, b), 1)[0]


def loaded_modules() -> list[Module]:
    """The modules that launches have left on this process's GPUs; empty if all were interpreted."""
    kernels = (PRODUCT, PROJECTION_BACKWARD, ADD, SILU_GATE, SILU_GATE_BACKWARD)
    return [module for kernel in kernels for module in kernel.modules()]


def compile_projections(shape: BlockShape, capability: int, layer: int = _SHARED) -> list[Module]:
    """The modules for the backward of a block's seven projections, in float32, for an absent GPU.

    With `layer`, one module for each projection; without it, one for projections with a bias and one for the others.
    """
    biased = [f"{projection}.bias" in shape.parameters() for projection in PROJECTIONS]
    wanted = dict.fromkeys(zip((_own(layer, projection) for projection in PROJECTIONS), biased, strict=True))
    block, block_k = _BLOCKS["cuda"]
    pointers = dict.fromkeys(("x", "weight", "gradient", "grad_x", "grad_weight", "grad_bias"), "*fp32")
    sizes = dict.fromkeys(("tokens", "size_in", "size_out", "x_row", "weight_row", "gradient_row"), "i32")
    return [
        PROJECTION_BACKWARD.compile(
            capability, {**pointers, **sizes}, layer=layer, projection=projection, sum_bias=bias,
            precision="ieee", block=block, block_k=block_k,
        )
        for projection, bias in wanted
    ]  # fmt: skip


def compile_elementwise(capability: int) -> list[Module]:
    """The modules of the element-wise kernels, which stay ours on both paths."""
    arguments = {
        ADD: ("a", "b", "c"),
        SILU_GATE: ("gate", "up", "c"),
        SILU_GATE_BACKWARD: ("gate", "up", "gradient", "grad_gate", "grad_up"),
    }
    return [
        kernel.compile(capability, {**dict.fromkeys(names, "*fp32"), "size": "i32"}, block=_ELEMENTS)
        for kernel, names in arguments.items()
    ]


def keep_compiled(folder: Path) -> None:
    """Make this process and its children cache machine code in `folder`, unless the environment names another."""
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder))


def _own(layer: int, projection: str) -> int:
    """The number that gives each projection a module of its own; one constant if modules are shared."""
    return _SHARED if layer == _SHARED else PROJECTIONS.index(projection)


def _product(a: Tensor, b: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    """a @ b with equal leading dimensions, any strides."""
    leading, rows, columns, inner = a.shape[:-2], a.shape[-2], b.shape[-1], a.shape[-1]
    a, b = a.reshape(-1, rows, inner), b.reshape(-1, inner, columns)
    c = a.new_empty(len(a), rows, columns)
    block, block_k = _BLOCKS[a.device.type]
    PRODUCT.launch(
        (_ceiling(rows, block), _ceiling(columns, block), len(a)), a.device.type,
        a, b, c, c if bias is None else bias, rows, columns, inner, *a.stride(), *b.stride(), *c.stride()[:2],
        add_bias=bias is not None, precision=precision,
        block_m=block, block_n=block, block_k=block_k,
    )  # fmt: skip
    return c.view(*leading, rows, columns)


def _each(kernel: Kernel, inputs: Sequence[Tensor], outputs: int) -> list[Tensor]:
    """Run an element-wise kernel over tensors of one shape."""
    inputs = [tensor.contiguous() for tensor in inputs]
    results = [torch.empty_like(inputs[0]) for _ in range(outputs)]
    size = inputs[0].numel()
    kernel.launch((_ceiling(size, _ELEMENTS),), inputs[0].device.type, *inputs, *results, size, block=_ELEMENTS)
    return results


def _by_row(matrix: Tensor) -> Tensor:
    return matrix if matrix.stride(-1) == 1 else matrix.contiguous()


def _ceiling(size: int, block: int) -> int:
    return -(-size // block)
