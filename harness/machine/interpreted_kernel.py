"""A kernel that shows whether Triton's interpreter works here: `python -m harness.machine.interpreted_kernel`.

Only that process imports this module, with TRITON_INTERPRET=1. It ends with an exception if the interpreter raises, or
computes something else than torch does.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["main"]

_EDGE = 16


@triton.jit
def _product_of_sums(rows, lengths, out, total, edge: tl.constexpr):
    """Sum as many tiles as `lengths` says, multiply the sum by itself, and add up the products of all programs."""
    place = tl.arange(0, edge)[:, None] * edge + tl.arange(0, edge)[None, :]
    count = tl.load(lengths + tl.program_id(0))
    tile = tl.zeros((edge, edge), tl.float32)
    for step in range(count):
        tile += tl.load(rows + step * edge * edge + place, mask=place < edge * edge - step, other=0.0)
    product = tl.dot(tile, tile)
    tl.store(out + tl.program_id(0) * edge * edge + place, product)
    tl.atomic_add(total, tl.sum(product))


def main() -> None:
    """Run the kernel and compare.

    Raises:
        ArithmeticError: the interpreter computed something else.
    """
    rows = torch.arange(3 * _EDGE * _EDGE, dtype=torch.float32).remainder(7.0).view(3, _EDGE, _EDGE)
    lengths = torch.tensor([0, 1, 3], dtype=torch.int32)
    out, total = torch.full((3, _EDGE, _EDGE), -1.0), torch.zeros(1)
    _product_of_sums[(3,)](rows, lengths, out, total, edge=_EDGE)
    kept = torch.arange(_EDGE * _EDGE).view(_EDGE, _EDGE)
    parts = torch.stack([row * (kept < _EDGE * _EDGE - step) for step, row in enumerate(rows)])
    sums = torch.stack([parts[:count].sum(0) for count in lengths.tolist()])
    expected = sums @ sums
    if not torch.equal(out, expected) or total.item() != expected.sum().item():
        raise ArithmeticError("Triton's interpreter computes other numbers than torch")


if __name__ == "__main__":
    main()
