"""A matrix product in Triton whose configurations need different amounts of shared memory."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from falsifiers.nanochat.device_subjects import Candidate


@triton.jit
def _product(left, right, made, width, rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * rows + tl.arange(0, rows)
    to = tl.program_id(1) * columns + tl.arange(0, columns)
    inner = tl.arange(0, depth)
    total = tl.zeros((rows, columns), tl.float32)
    for start in range(0, width, depth):
        a = tl.load(left + at[:, None] * width + (start + inner)[None, :])
        b = tl.load(right + (start + inner)[:, None] * width + to[None, :])
        total = tl.dot(a, b, total)
    tl.store(made + at[:, None] * width + to[None, :], total)


def product(left: Tensor, right: Tensor, candidate: Candidate) -> Tensor:
    """Return the float32 product of two square bfloat16 matrices, whose width is a multiple of every block size.

    Raises:
        OutOfResources: the GPU has less shared memory than the configuration needs.
    """
    width = len(left)
    result = torch.empty(width, width, device=left.device)
    grid = (width // candidate["rows"], width // candidate["columns"])
    blocks = {name: candidate[name] for name in ("rows", "columns", "depth")}
    _product[grid](left, right, result, width, **blocks, num_stages=candidate["stages"], num_warps=8)
    return result


def shared_bytes(candidate: Candidate, capability: int) -> int:
    """Return the shared memory that Triton's code for a capability such as 121 needs, in bytes. No GPU is needed."""
    blocks = {name: candidate[name] for name in ("rows", "columns", "depth")}
    types: dict[str, Any] = {"left": "*bf16", "right": "*bf16", "made": "*fp32", "width": "i32"}
    aligned = {(index,): [["tt.divisibility", 16]] for index in range(len(types))}  # as at a launch
    source = ASTSource(_product, {**types, **dict.fromkeys(blocks, "constexpr")}, blocks, aligned)
    options = {"num_stages": candidate["stages"], "num_warps": 8}
    return int(triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).metadata.shared)
