"""Matrix products in WGSL: the choice of pipeline and tile, and how a product is split."""

import math
from dataclasses import dataclass
from typing import Final

from falsifiers.blackwell.reference.wgpu_device import Device, Kernel

_WORKGROUPS: Final = 256
"""Enough workgroups for a large GPU: an H200 has 132 multiprocessors, and two workgroups each hide latency."""
_SHORTEST_SPLIT: Final = 256
"""Steps along k below which the sum of the parts costs more than the split gains."""


@dataclass(frozen=True)
class Tile:
    """The part that one workgroup computes: 8 * rows by 8 * columns elements, `depth` steps along k at a time."""

    rows: int
    columns: int
    depth: int

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a workgroup in bytes; see gemm.wgsl for the padding."""
        return 16 * self.depth * (2 * self.rows + 1 + 2 * self.columns + 1)


LARGE: Final = Tile(16, 16, 16)
NARROW: Final = Tile(16, 8, 16)
SMALL: Final = Tile(8, 8, 16)
TINY: Final = Tile(4, 4, 8)


@dataclass(frozen=True)
class Product:
    """`c [m, n] = op(a) op(b)`, `batches` times. op(a) is [m, k] and op(b) is [k, n]; each may be stored transposed."""

    m: int
    n: int
    k: int
    batches: int
    transpose_a: bool
    transpose_b: bool

    @property
    def pitch_a(self) -> int:
        """Elements of a stored row of a."""
        return self.m if self.transpose_a else self.k

    @property
    def pitch_b(self) -> int:
        """Elements of a stored row of b."""
        return self.k if self.transpose_b else self.n

    def tiles(self, tile: Tile) -> int:
        """Workgroups of one matrix."""
        return math.ceil(self.m / (8 * tile.rows)) * math.ceil(self.n / (8 * tile.columns))

    def fits(self, tile: Tile) -> bool:
        """Whether the tile divides all sizes, so that no bounds checks are needed."""
        return not (self.m % (8 * tile.rows) or self.n % (8 * tile.columns) or self.k % tile.depth)


def choose_tile(product: Product, device: Device) -> Tile:
    """The largest tile that fits evenly and is not mostly padding; on a CPU the smallest, because threads are loops."""
    if device.kind == "CPU":
        return TINY
    for tile in (LARGE, NARROW, SMALL):
        if product.fits(tile) and tile.shared_bytes <= device.shared_bytes:
            return tile
    large = product.m >= 512 and product.n >= 512 and LARGE.shared_bytes <= device.shared_bytes
    return LARGE if large else SMALL


def splits(product: Product, tile: Tile) -> int:
    """The number of parts along k, for a product too small to keep the adapter busy; 1 for most products.

    Parts are equal, and multiples of the tile's depth.
    """
    if product.batches > 1 or product.k % tile.depth:
        return 1
    wanted = min(_WORKGROUPS // product.tiles(tile), product.k // _SHORTEST_SPLIT)
    steps = product.k // tile.depth
    return next((parts for parts in range(wanted, 1, -1) if steps % parts == 0), 1)


def kernel(product: Product, tile: Tile) -> Kernel:
    """The pipeline for a product: one for even tiles, one for ragged ones."""
    loads = "gemm_aligned.wgsl" if product.fits(tile) else "gemm_ragged.wgsl"
    constants = {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.depth,
        "TRANSPOSE_A": int(product.transpose_a),
        "TRANSPOSE_B": int(product.transpose_b),
    }
    return Kernel((loads, "gemm.wgsl"), "gemm", (1, 2, 3), tuple(constants.items()))


def uniform(product: Product, parts: int = 1) -> list[int]:
    """The struct `Sizes` of gemm.wgsl. Parts along k lie inside the same rows, and each counts as a matrix."""
    if parts == 1:
        strides = [product.m * product.k, product.k * product.n]
        return [product.m, product.n, product.k, product.pitch_a, product.pitch_b, *strides, product.batches]
    k = product.k // parts
    batch_a = k * product.m if product.transpose_a else k
    batch_b = k if product.transpose_b else k * product.n
    return [product.m, product.n, k, product.pitch_a, product.pitch_b, batch_a, batch_b, parts]
