"""What F-BLACKWELL-PREWARM-KEYS-001 is about: a backend whose kernels are loaded before the first step needs them."""

from __future__ import annotations

from typing import Protocol

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.kernel_cache import KernelCache
from falsifiers.blackwell.reference.shapes import BlockShape

__all__ = ["Prewarmed", "Prewarming"]


class Prewarming(Backend, Protocol):
    """A backend that can load all kernels of a block at once."""

    def prewarm(self, shape: BlockShape) -> None:
        """Load every kernel that forward and backward of such a block launch."""
        ...


class Prewarmed(Protocol):
    """A maker of such backends, built as `Maker(setting)`."""

    def cache(self) -> KernelCache:
        """A cache with nothing in it, whose kernels are compiled for the device of the setting and run there."""
        ...

    def rehearsed(self) -> KernelCache:
        """The same, but nothing is compiled or run: for thousands of configurations, on any machine."""
        ...

    def backend(self, cache: KernelCache) -> Prewarming:
        """A backend on that cache; several share one, as teacher and student do."""
        ...
