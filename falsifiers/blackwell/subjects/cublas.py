"""What F-BLACKWELL-CUBLAS-001 needs from a subject: two paths for the backward of a block's projections."""

from collections.abc import Sequence
from typing import Literal, Protocol

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.shapes import BlockShape

Path = Literal["new", "old"]
Moved = Literal["nothing", "backward", "products"]
"""Work that the library has taken over: none, the backward of the projections, or every matrix product."""


class TwoPaths(Protocol):
    """A block's matrix products, by a library ("new") or by own kernels ("old"); built as `Subject(setting)`."""

    def backend(self, path: Path, layer: int) -> Backend:
        """The backend of one layer on this path; layers count from 0."""
        ...

    def prewarm(self, path: Path, shape: BlockShape, layers: int) -> Sequence[int]:
        """Bytes of every module in the kernel cache after all kernels of this path have been warmed up.

        The falsifier asks for the new path first, before any kernel has run. On the old path every layer has its own
        modules.
        """
        ...

    def shared_modules(self, moved: Moved, shape: BlockShape) -> Sequence[int]:
        """Bytes of every module in a cache with one module per kernel and shape, shared by all layers.

        The cache holds the kernels of a block's forward and backward whose work the library has not taken over.
        """
        ...
