"""Single operations of sizes that a block of the profile does not have, and their errors, held against float64."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation

from falsifiers.blackwell.measuring.gradient_errors import largest_relative_error
from falsifiers.blackwell.reference.backend import Backend

__all__ = ["LARGEST", "norm_error", "product_errors"]

_MOST_TILES = 3
LARGEST = (128 * _MOST_TILES) ** 2
"""Elements of the largest matrix of a product."""
_EPS = 1e-6


def product_errors(backend: Backend, seed: int, device: str) -> list[float]:
    """The relative errors of products: each size with each operand stored either way.

    The last matrix of a batch is NaN, so that a kernel that reads behind the matrix before it shows.
    """
    generator = torch.Generator().manual_seed(seed)
    errors = []
    for batches, m, n, k in _sizes(random.Random(seed)):  # noqa: S311 - sizes, no secrets
        a, b = (torch.randn(size, generator=generator).to(device) for size in ((batches, m, k), (batches, k, n)))
        right = batches - 1 or 1
        a[right:], b[right:] = torch.nan, torch.nan
        wanted = (a.double() @ b.double())[:right]
        for transpose_a in (False, True):
            for transpose_b in (False, True):
                found = backend.matmul(
                    a.mT.contiguous() if transpose_a else a,
                    b.mT.contiguous() if transpose_b else b,
                    transpose_a=transpose_a,
                    transpose_b=transpose_b,
                )
                errors.append(largest_relative_error({"product": found[:right]}, {"product": wanted}))
    return errors


def norm_error(backend: Backend, size: tuple[int, int], seed: int, device: str) -> float:
    """The relative error of the gradients of a norm over x [rows, columns]: of x, or of the weight over all rows."""
    generator = torch.Generator().manual_seed(seed)
    x, above, weight = (torch.randn(one, generator=generator).to(device) for one in (size, size, size[1:]))
    leaves = [one.double().requires_grad_() for one in (x, weight)]
    with torch.enable_grad():
        output = F.rms_norm(leaves[0], size[1:], leaves[1], _EPS)
    wanted = torch.autograd.grad(output, leaves, above.double())
    found = dict(zip(("x", "weight"), backend.rms_norm_backward(x, weight, above, _EPS), strict=True))
    return largest_relative_error(found, dict(zip(found, wanted, strict=True)))


def _sizes(chance: random.Random) -> list[tuple[int, int, int, int]]:
    """Batches, rows, columns and summands: whole tiles of 128, 64 and 32, few summands, ragged, and sums in parts.

    The last sum has three times 256 summands and more. Its steps of 8 or of 16 cannot be cut into three equal parts.
    """

    def times(size: int) -> int:
        return size * chance.randint(1, _MOST_TILES)

    return [
        *((3, times(tile), times(tile), times(16)) for tile in (128, 64, 32)),
        (3, 128, 64, times(16)),
        (3, 128, 128, chance.randint(1, 7)),
        (3, times(32) + chance.randint(1, 31), times(32) + chance.randint(1, 31), times(16) + chance.randint(1, 7)),
        (1, 64, 64, 256 * chance.randint(2, 4)),
        (1, 64, 64, 16 * chance.choice((49, 50, 52, 53, 55, 56))),
    ]
