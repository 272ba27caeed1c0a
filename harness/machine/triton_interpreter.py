"""Checks that Triton's interpreter, which runs kernels on the CPU, works on this machine.

Some versions of Triton and NumPy are incompatible. Then every kernel raises, and the subject is not at fault.
As a program, this module runs a kernel, and exits with an exception if the interpreter raises or its result differs
from torch's.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Final

from harness.machine import timebox

__all__ = ["misfit"]

_SECONDS: Final = 120.0


@cache
def misfit() -> str:
    """Return why the interpreter does not run a kernel of the harness; empty if it does.

    Another process runs the kernel, with the modules that this one would import. That takes some seconds.
    """
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    answer = timebox.output([sys.executable, "-m", __name__], _SECONDS, environment=environment)
    if answer.value is not None:
        return ""
    with_numpy = " and ".join(f"{name} {_version(name)}" for name in ("triton", "numpy"))
    return f"Triton's interpreter does not work here on its own ({with_numpy}): {answer.reason}"


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version(name)
    except PackageNotFoundError:
        return "of an unknown version"


if __name__ == "__main__":
    import torch
    import triton
    import triton.language as tl

    edge = 16

    @triton.jit
    def product_of_sums(rows, lengths, out, total, edge: tl.constexpr):
        """Sum as many tiles as `lengths` says, multiply the sum by itself, and add up the products of all programs."""
        place = tl.arange(0, edge)[:, None] * edge + tl.arange(0, edge)[None, :]
        count = tl.load(lengths + tl.program_id(0))
        tile = tl.zeros((edge, edge), tl.float32)
        for step in range(count):
            tile += tl.load(rows + step * edge * edge + place, mask=place < edge * edge - step, other=0.0)
        product = tl.dot(tile, tile)
        tl.store(out + tl.program_id(0) * edge * edge + place, product)
        tl.atomic_add(total, tl.sum(product))

    rows = torch.arange(3 * edge * edge, dtype=torch.float32).remainder(7.0).view(3, edge, edge)
    lengths = torch.tensor([0, 1, 3], dtype=torch.int32)
    out, total = torch.full((3, edge, edge), -1.0), torch.zeros(1)
    product_of_sums[(3,)](rows, lengths, out, total, edge=edge)
    original = torch.arange(edge * edge).view(edge, edge)
    parts = torch.stack([row * (original < edge * edge - step) for step, row in enumerate(rows)])
    sums = torch.stack([parts[:count].sum(0) for count in lengths.tolist()])
    expected = sums @ sums
    if not torch.equal(out, expected) or total.item() != expected.sum().item():
        raise ArithmeticError("Triton's interpreter computes other numbers than torch")
