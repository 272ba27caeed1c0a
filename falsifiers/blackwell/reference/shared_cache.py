"""The content of a kernel cache that all layers share: one module per kernel and shape.

SPEC-BLACKWELL-FIX-001 counts one module for each of seven kernels in each of 24 layers. It also says that the cache has
27 forward and about 6 backward kernels, which is true if layers share them. So both are counted.
"""

from functools import cache

from falsifiers.blackwell.reference.kernels.catalogue import (
    block_kernels,
    project_backward_weight,
    project_backward_x,
)
from falsifiers.blackwell.reference.kernels.nvrtc import compile_kernel
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.shapes import PROJECTIONS, BlockShape
from falsifiers.blackwell.subjects.cublas import Moved


def shared_modules(shape: BlockShape, moved: Moved, capability: int) -> list[int]:
    """Bytes of machine code of every module, compiled for an absent GPU.

    The modules are the CUDA C kernels for forward and backward of a block, without those whose work a library has taken
    over. Kernels that differ only in name count once: those for k and v, and for gate and up.
    """
    return [_size(spec, capability) for spec in _distinct(shape, _replaced(shape, moved))]


def _replaced(shape: BlockShape, moved: Moved) -> frozenset[KernelSpec]:
    kernels = block_kernels(shape)
    if moved == "products":
        return frozenset(spec for spec in kernels if spec.source == "gemm")
    if moved == "nothing":
        return frozenset()
    both = (project_backward_x, project_backward_weight)
    return frozenset(of(name, *shape.projection(name)) for name in PROJECTIONS for of in both)


def _distinct(shape: BlockShape, replaced: frozenset[KernelSpec]) -> list[KernelSpec]:
    kept = [spec for spec in block_kernels(shape) if spec not in replaced]
    return list({(spec.source, spec.constants): spec for spec in reversed(kept)}.values())


@cache
def _size(spec: KernelSpec, capability: int) -> int:
    return len(compile_kernel(spec, capability).data)
