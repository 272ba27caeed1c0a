"""Sizes that often break kernels: near powers of two, near constants of the source, 1, and primes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["sizes_of"]

_POWERS: Final = (4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def sizes_of(least: int, most: int | None, step: int, constants: Iterable[int]) -> list[int]:
    """Return the sizes to try, smallest first: multiples of `step` from `least` to `most`."""
    around = {1, 2, 3, 97, 769} | {constant + near for constant in {*_POWERS, *constants} for near in (-1, 0, 1)}
    around |= {2 * constant - 1 for constant in constants}
    rounded = {-(-size // step) * step for size in around}
    return sorted(size for size in rounded if size >= max(1, least) and (most is None or size <= most))
