"""What F-BLACKWELL-PREWARM-KEYS-001 needs from a subject: a backend that loads its kernels before the first step."""

from __future__ import annotations

from typing import Protocol

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.kernel_cache import KernelCache
from falsifiers.blackwell.reference.shapes import BlockShape

__all__ = ["Prewarmed", "Prewarming"]


class Prewarming(Backend, Protocol):
    """A backend that can load all kernels of a block at once."""

    def prewarm(self, shape: BlockShape) -> None:
        """Load every kernel that forward and backward of a block of this shape launch."""
        ...


class Prewarmed(Protocol):
    """Makes such backends; built as `Subject(setting)`."""

    def cache(self) -> KernelCache:
        """An empty cache. Its kernels are compiled for the device of the setting and run there."""
        ...

    def rehearsed(self) -> KernelCache:
        """An empty cache that neither compiles nor runs kernels, to try thousands of configurations on any machine."""
        ...

    def backend(self, cache: KernelCache) -> Prewarming:
        """A backend on that cache. Several backends may share one, as teacher and student do."""
        ...
