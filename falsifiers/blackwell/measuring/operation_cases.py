"""Single operations of sizes that a block of the profile does not have, and their errors, held against float64."""

import math
import random

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation

from falsifiers.blackwell.measuring.gradient_errors import largest_relative_error, relative_error
from falsifiers.blackwell.reference.backend import Backend

_MOST_TILES = 3
LARGEST = (128 * _MOST_TILES) ** 2
"""Elements of the largest matrix of a product."""
_BATCHES = 3
LARGEST_BATCH = _BATCHES * LARGEST
"""Elements of the largest batch of such matrices, which is one tensor."""
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
        expected = (a.double() @ b.double())[:right]
        for transpose_a in (False, True):
            for transpose_b in (False, True):
                actual = backend.matmul(
                    a.mT.contiguous() if transpose_a else a,
                    b.mT.contiguous() if transpose_b else b,
                    transpose_a=transpose_a,
                    transpose_b=transpose_b,
                )
                errors.append(largest_relative_error({"product": actual[:right]}, {"product": expected}))
    return errors


def norm_error(backend: Backend, size: tuple[int, int], seed: int, device: str) -> float:
    """The relative error of the gradients of a norm over x [rows, columns]: of x, or of the weight over all rows."""
    generator = torch.Generator().manual_seed(seed)
    x, grad_output, weight = (torch.randn(shape, generator=generator).to(device) for shape in (size, size, size[1:]))
    leaves = [tensor.double().requires_grad_() for tensor in (x, weight)]
    with torch.enable_grad():
        output = F.rms_norm(leaves[0], size[1:], leaves[1], _EPS)
    expected = torch.autograd.grad(output, leaves, grad_output.double())
    actual = dict(zip(("x", "weight"), backend.rms_norm_backward(x, weight, grad_output, _EPS), strict=True))
    return largest_relative_error(actual, dict(zip(actual, expected, strict=True)))


def overlong_error(backend: Backend, columns: int, device: str) -> float:
    """0 if the backend refuses the norm of a row that its adapter cannot bind; else the relative error of the norm."""
    x, weight = torch.linspace(-1.0, 1.0, columns).to(device), torch.ones(columns, device=device)
    try:
        actual = backend.rms_norm(x.unsqueeze(0), weight, _EPS)
    except Exception:  # a refusal, of whatever class
        return 0.0
    return relative_error(actual.squeeze(0), F.rms_norm(x.double(), (columns,), weight.double(), _EPS))


def rotation_errors(backend: Backend, elements: int, head_dim: int, seed: int, device: str) -> list[float]:
    """The relative errors of RoPE and of its gradient, over heads of so many elements in all.

    The positions of a head are a prime number, so a part that begins inside a head shows.
    """
    positions, theta = 37, 1e4
    heads = math.ceil(elements / (positions * head_dim))
    x = torch.randn(heads, positions, head_dim, generator=torch.Generator().manual_seed(seed)).to(device)
    rates = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim)
    angles = torch.arange(positions, dtype=torch.float64, device=device).unsqueeze(-1) * rates
    pairs = torch.complex(*x.double().chunk(2, dim=-1))
    errors = []
    for rotate, sign in ((backend.rope, 1.0), (backend.rope_backward, -1.0)):
        turned = pairs * torch.polar(torch.ones_like(angles), sign * angles)
        errors.append(relative_error(rotate(x, theta), torch.cat([turned.real, turned.imag], dim=-1)))
    return errors


def softmax_errors(backend: Backend, elements: int, seed: int, device: str) -> list[float]:
    """The relative errors of the causal softmax and of its gradient, over matrices of so many elements in all.

    The scores of a matrix are all near 0, near 100,000 or near -100,000, and those of later keys 100,000 larger. So a
    number that hides a later key must be below all scores. The scale is a power of two, which rounds none of them.
    """
    keys, scale = 61, 0.5
    generator = torch.Generator().manual_seed(seed)
    sizes = (math.ceil(elements / keys**2), keys, keys)
    scores, grad_output = (torch.randn(sizes, generator=generator).to(device) for _ in range(2))
    scores += torch.tensor([-1e5, 0.0, 1e5], device=device)[torch.arange(sizes[0], device=device) % 3, None, None]
    later = torch.ones(keys, keys, dtype=torch.bool, device=device).triu(1)
    scores += 1e5 * later
    leaf = scores.double().requires_grad_()
    with torch.enable_grad():
        expected = torch.softmax((scale * leaf).masked_fill(later, -math.inf), dim=-1)
    (grad_scores,) = torch.autograd.grad(expected, leaf, grad_output.double())
    actual = backend.causal_softmax(scores, scale)
    of_found = backend.causal_softmax_backward(expected.detach().float(), grad_output, scale)
    return [relative_error(actual, expected.detach()), relative_error(of_found, grad_scores)]


def elementwise_errors(backend: Backend, elements: int, seed: int, device: str) -> list[float]:
    """The relative errors of the gate and of its gradients, for gates from -100 to 100 and those near 0.

    The exponential of 89 is infinite in float32.
    """
    generator = torch.Generator().manual_seed(seed)
    up, grad_output = (torch.randn(elements, generator=generator).to(device) for _ in range(2))
    few = elements // 2
    gate = torch.cat([torch.linspace(-100.0, 100.0, elements - few), torch.linspace(-4.0, 4.0, few)]).to(device)
    leaves = [tensor.double().requires_grad_() for tensor in (gate, up)]
    with torch.enable_grad():
        expected = F.silu(leaves[0]) * leaves[1]
    of_leaves = torch.autograd.grad(expected, leaves, grad_output.double())
    actual = (backend.silu_gate(gate, up), *backend.silu_gate_backward(gate, up, grad_output))
    return [
        relative_error(tensor, other) for tensor, other in zip(actual, (expected.detach(), *of_leaves), strict=True)
    ]


def _sizes(chance: random.Random) -> list[tuple[int, int, int, int]]:
    """Batches, rows, columns and summands: whole tiles of 128, 64 and 32, few summands, ragged, and sums in parts.

    The last sum has three times 256 summands and more. Its steps of 8 or of 16 cannot be cut into three equal parts.
    """

    def times(size: int) -> int:
        return size * chance.randint(1, _MOST_TILES)

    return [
        *((_BATCHES, times(tile), times(tile), times(16)) for tile in (128, 64, 32)),
        (_BATCHES, 128, 64, times(16)),
        (_BATCHES, 128, 128, chance.randint(1, 7)),
        (
            _BATCHES,
            times(32) + chance.randint(1, 31),
            times(32) + chance.randint(1, 31),
            times(16) + chance.randint(1, 7),
        ),
        (1, 64, 64, 256 * chance.randint(2, 4)),
        (1, 64, 64, 16 * chance.choice((49, 50, 52, 53, 55, 56))),
    ]
