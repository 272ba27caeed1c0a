"""How the elements of a tensor are stored, and how their bytes become numbers.

Dtypes have the names of safetensors and GGML in every format, so that files of two formats can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["APR_Q4", "APR_Q8", "BY_NAME", "DType", "ggml"]

Numbers = NDArray[Any]
"""A one-dimensional array of real numbers: floats, integers or booleans."""


@dataclass(frozen=True)
class DType:
    """A way to store numbers: an optional prefix, then blocks of equal size.

    Attributes:
        block: elements in one block; more than one if elements share a scale or a byte.
        block_bytes: bytes of one block.
        decode: a function from whole blocks and the prefix to numbers; None if we cannot decode this dtype. A complex
            number becomes two real ones.
        numpy: the numpy type of one element, if a block is one element; else None.
        prefix: bytes before the blocks, such as a scale of the whole tensor.
        partial: whether the last block may hold fewer elements.
    """

    name: str
    block: int
    block_bytes: int
    decode: Callable[[bytes, bytes], Numbers] | None
    numpy: np.dtype[Any] | None = None
    prefix: int = 0
    partial: bool = False

    def nbytes(self, elements: int) -> int | None:
        """The number of bytes of so many elements; None if they do not fill whole blocks."""
        blocks, rest = divmod(elements, self.block)
        if rest and not self.partial:
            return None
        return self.prefix + (blocks + bool(rest)) * self.block_bytes


def _plain(name: str, element: Any) -> DType:
    """A dtype of numpy or ml_dtypes, with one element in each block."""
    stored = np.dtype(element)
    real = np.dtype(stored.name.replace("complex128", "float64").replace("complex64", "float32"))
    # numpy computes several times faster on its own types. Single precision represents every narrow type exactly.
    widen = real.kind == "V" or real == np.float16

    def decode(blocks: bytes, _prefix: bytes) -> Numbers:
        numbers: Numbers = np.frombuffer(blocks, real)
        if widen:
            numbers = numbers.astype(np.float32)
        return numbers

    return DType(name, 1, stored.itemsize, decode, stored)


def _bool(blocks: bytes, _prefix: bytes) -> Numbers:
    # A byte of a hostile file may be neither 0 nor 1. numpy's bool does not handle that.
    return np.frombuffer(blocks, np.uint8)


def _nibbles(blocks: bytes) -> NDArray[np.uint8]:
    """Split each byte into two four-bit numbers, the low one first."""
    raw = np.frombuffer(blocks, np.uint8)
    return np.stack([raw & 0x0F, raw >> 4], axis=1).reshape(-1)


def _f4(blocks: bytes, _prefix: bytes) -> Numbers:
    numbers: Numbers = _nibbles(blocks).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    return numbers


def _apr_q4(blocks: bytes, _prefix: bytes) -> Numbers:
    rows = np.frombuffer(blocks, np.uint8).reshape(-1, 18)
    scales = rows[:, :2].copy().view(np.float16).astype(np.float32)
    quants = _nibbles(rows[:, 2:].tobytes()).reshape(-1, 32).astype(np.float32) - 8
    return (quants * scales).reshape(-1)


def _apr_q8(blocks: bytes, prefix: bytes) -> Numbers:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.frombuffer(blocks, np.int8).astype(np.float32) * np.frombuffer(prefix, np.float32)


APR_Q4 = DType("APR_Q4", 32, 18, _apr_q4, partial=True)
"""Blocks of a half-precision scale and 32 nibbles; subtract 8 from each nibble (aprender-core, format/v2/writer.rs)."""
APR_Q8 = DType("APR_Q8", 1, 1, _apr_q8, prefix=4)
"""A single-precision scale, then one signed byte for each element (aprender-core, format/v2/writer.rs)."""

BY_NAME = {
    dtype.name: dtype
    for dtype in (
        DType("BOOL", 1, 1, _bool, np.dtype(np.uint8)),
        DType("F4", 2, 1, _f4),
        # Four elements lie in three bytes, in an order that the format leaves open. So there are no statistics.
        DType("F6_E2M3", 4, 3, None),
        DType("F6_E3M2", 4, 3, None),
        _plain("U8", np.uint8),
        _plain("I8", np.int8),
        _plain("F8_E5M2", ml_dtypes.float8_e5m2),
        _plain("F8_E4M3", ml_dtypes.float8_e4m3fn),
        _plain("F8_E8M0", ml_dtypes.float8_e8m0fnu),
        _plain("F8_E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
        _plain("F8_E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
        _plain("I16", "<i2"),
        _plain("U16", "<u2"),
        _plain("F16", "<f2"),
        _plain("BF16", ml_dtypes.bfloat16),
        _plain("I32", "<i4"),
        _plain("U32", "<u4"),
        _plain("F32", "<f4"),
        _plain("C64", "<c8"),
        _plain("F64", "<f8"),
        _plain("I64", "<i8"),
        _plain("U64", "<u8"),
        _plain("C128", "<c16"),
    )
}


@cache
def ggml(number: int) -> DType | None:
    """Return the GGML type with this number; None if the package gguf does not know it."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        return None
    if kind.name in BY_NAME:
        return BY_NAME[kind.name]
    block, block_bytes = GGML_QUANT_SIZES[kind]

    def decode(blocks: bytes, _prefix: bytes) -> Numbers:
        with np.errstate(all="ignore"):  # scales in a hostile file overflow
            numbers: Numbers = dequantize(np.frombuffer(blocks, np.uint8).reshape(-1, block_bytes), kind)
        return numbers.reshape(-1)

    try:
        decode(bytes(block_bytes), b"")
    except NotImplementedError:
        return DType(kind.name, block, block_bytes, None)
    return DType(kind.name, block, block_bytes, decode)
