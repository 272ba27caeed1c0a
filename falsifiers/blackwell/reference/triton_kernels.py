"""Triton kernels that run in two forms: compiled on CUDA, and in Triton's interpreter, with numpy, on a CPU.

They use nothing of `triton.language.standard` (`tl.sum`, `tl.zeros`, `tl.cdiv`): a process either compiles or
interprets that module, but ours interprets these kernels and also compiles them, to count modules and bytes. Factors
and sums of products are float32 whatever the tensors hold, because the interpreter has no bfloat16 product. No claim
here is about the speed of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

_ONLY_COMPILING: ContextVar[bool] = ContextVar("_ONLY_COMPILING", default=False)


@contextmanager
def only_compiling() -> Iterator[None]:
    """Launches on CUDA compile their kernels, side by side, and run nothing, until the block ends."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool, triton.AsyncCompileMode(pool):
        before = _ONLY_COMPILING.set(True)
        try:
            yield
        finally:
            _ONLY_COMPILING.reset(before)


@dataclass(frozen=True)
class Module:
    """One entry of the kernel cache, which the driver keeps as a module.

    Attributes:
        kernel: the name of its only entry.
        size: bytes of its machine code.
    """

    kernel: str
    size: int


class Kernel:
    """A kernel in both forms."""

    def __init__(self, function: Any) -> None:
        self.name: str = function.__name__
        self._compiled = JITFunction(function)
        self._interpreted = InterpretedFunction(function)

    def launch(self, grid: tuple[int, ...], device: str, *arguments: Any, **constants: Any) -> None:
        """Run a grid of programs. `device` is the type of the tensors' device, "cuda" or "cpu"."""
        if device != "cuda":
            self._interpreted[grid](*arguments, **constants)
        elif _ONLY_COMPILING.get():
            self._compiled.warmup(*arguments, grid=grid, **constants)
        else:
            self._compiled[grid](*arguments, **constants)

    def compile(self, capability: int, signature: Mapping[str, str], **constants: Any) -> Module:
        """Machine code for an absent GPU.

        Args:
            capability: its target, such as 90 for sm_90.
            signature: the Triton type of every argument that is not a constant, such as "*fp32" or "i32".
        """
        types = {name: signature.get(name, "constexpr") for name in self._compiled.arg_names}
        source = ASTSource(self._compiled, types, {name: constants[name] for name in types if name not in signature})
        return Module(self.name, len(triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]))

    def modules(self) -> list[Module]:
        """The modules that launches have compiled in this process, on all devices, from Triton's own cache."""
        return [
            Module(self.name, len(kernel.asm["cubin"]))
            for cache, *_ in self._compiled.device_caches.values()
            for kernel in cache.values()
        ]


def product(  # type: ignore[no-untyped-def]
    a, b, c, bias, rows, columns, inner,
    a_batch, a_row, a_inner, b_batch, b_inner, b_column, c_batch, c_row,
    add_bias: tl.constexpr, precision: tl.constexpr,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """c[batch, row, column] = sum of a[batch, row, k] * b[batch, k, column], and bias[column]; strides in elements."""
    batch = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * block_m + tl.arange(0, block_m)[:, None].to(tl.int64)
    column = tl.program_id(1) * block_n + tl.arange(0, block_n)[None, :].to(tl.int64)
    along = tl.arange(0, block_k).to(tl.int64)
    total = tl.full([block_m, block_n], 0.0, tl.float32)
    for start in range(0, inner, block_k):
        k = start + along
        left = tl.load(
            a + batch * a_batch + row * a_row + k[None, :] * a_inner,
            mask=(row < rows) & (k[None, :] < inner), other=0.0,
        )  # fmt: skip
        right = tl.load(
            b + batch * b_batch + k[:, None] * b_inner + column * b_column,
            mask=(k[:, None] < inner) & (column < columns), other=0.0,
        )  # fmt: skip
        total = tl.dot(left.to(tl.float32), right.to(tl.float32), total, input_precision=precision)
    if add_bias:
        total += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    place = c + batch * c_batch + row * c_row + column
    tl.store(place, total.to(c.dtype.element_ty), mask=(row < rows) & (column < columns))


def projection_backward(  # type: ignore[no-untyped-def]
    x, weight, gradient, grad_x, grad_weight, grad_bias, tokens, size_in, size_out, x_row, weight_row, gradient_row,
    layer: tl.constexpr, projection: tl.constexpr, sum_bias: tl.constexpr, precision: tl.constexpr,
    block: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """All gradients of a projection in one launch and one module.

    The first programs compute tiles of `gradient @ weight` [tokens, size_in]. The others compute tiles of `gradient.T @
    x` [size_out, size_in] and the sum of `gradient` over tokens, as its product with a column of ones. `layer` and
    `projection` only give every projection of every layer a module of its own.
    """
    program = tl.program_id(0)
    tiles_across = (size_in + block - 1) // block
    tiles_of_x = ((tokens + block - 1) // block) * tiles_across
    along = tl.arange(0, block_k).to(tl.int64)
    within = tl.arange(0, block).to(tl.int64)
    total = tl.full([block, block], 0.0, tl.float32)
    if program < tiles_of_x:
        token = (program // tiles_across) * block + within[:, None]
        feature = (program % tiles_across) * block + within[None, :]
        for start in range(0, size_out, block_k):
            k = start + along
            left = tl.load(
                gradient + token * gradient_row + k[None, :],
                mask=(token < tokens) & (k[None, :] < size_out), other=0.0,
            )  # fmt: skip
            right = tl.load(
                weight + k[:, None] * weight_row + feature,
                mask=(k[:, None] < size_out) & (feature < size_in), other=0.0,
            )  # fmt: skip
            total = tl.dot(left.to(tl.float32), right.to(tl.float32), total, input_precision=precision)
        place = grad_x + token * size_in + feature
        tl.store(place, total.to(grad_x.dtype.element_ty), mask=(token < tokens) & (feature < size_in))
    else:
        tile = program - tiles_of_x
        output = (tile // tiles_across) * block + within
        feature = (tile % tiles_across) * block + within[None, :]
        ones = tl.full([block_k, 16], 1.0, tl.float32)
        sums = tl.full([block, 16], 0.0, tl.float32)
        for start in range(0, tokens, block_k):
            k = start + along
            left = tl.load(
                gradient + k[None, :] * gradient_row + output[:, None],
                mask=(k[None, :] < tokens) & (output[:, None] < size_out), other=0.0,
            )  # fmt: skip
            right = tl.load(
                x + k[:, None] * x_row + feature,
                mask=(k[:, None] < tokens) & (feature < size_in), other=0.0,
            )  # fmt: skip
            total = tl.dot(left.to(tl.float32), right.to(tl.float32), total, input_precision=precision)
            if sum_bias:
                sums = tl.dot(left.to(tl.float32), ones, sums, input_precision=precision)
        place = grad_weight + output[:, None] * size_in + feature
        inside = (output[:, None] < size_out) & (feature < size_in)
        tl.store(place, total.to(grad_weight.dtype.element_ty), mask=inside)
        if sum_bias:
            lane = tl.arange(0, 16)[None, :]
            first = (lane == 0) & (tile % tiles_across == 0) & (output[:, None] < size_out)
            tl.store(grad_bias + output[:, None] + 0 * lane, sums.to(grad_bias.dtype.element_ty), mask=first)


def add(a, b, c, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """c = a + b, element by element, computed in float32."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < size
    total = tl.load(a + at, mask=inside, other=0.0).to(tl.float32) + tl.load(b + at, mask=inside, other=0.0)
    tl.store(c + at, total.to(c.dtype.element_ty), mask=inside)


def silu_gate(gate, up, c, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """c = gate * sigmoid(gate) * up, computed in float32."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < size
    z = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(c + at, (z / (1.0 + tl.exp(-z)) * other).to(c.dtype.element_ty), mask=inside)


def silu_gate_backward(gate, up, gradient, grad_gate, grad_up, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradients of gate and up: the derivative of z * s(z) is s(z) * (1 + z * (1 - s(z)))."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < size
    z = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    grad_output = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    sigmoid = 1.0 / (1.0 + tl.exp(-z))
    slope = sigmoid * (1.0 + z * (1.0 - sigmoid))
    tl.store(grad_gate + at, (grad_output * other * slope).to(grad_gate.dtype.element_ty), mask=inside)
    tl.store(grad_up + at, (grad_output * z * sigmoid).to(grad_up.dtype.element_ty), mask=inside)


PRODUCT = Kernel(product)
PROJECTION_BACKWARD = Kernel(projection_backward)
ADD = Kernel(add)
SILU_GATE = Kernel(silu_gate)
SILU_GATE_BACKWARD = Kernel(silu_gate_backward)
