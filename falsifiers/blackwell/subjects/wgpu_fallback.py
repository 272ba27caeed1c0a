"""What F-BLACKWELL-WGPU-FALLBACK-001 needs from a subject: layers whose backward falls back to wgpu."""

from typing import Protocol

from falsifiers.blackwell.reference.backend import Backend
from falsifiers.blackwell.reference.block import Block


class FallbackBlocks(Protocol):
    """Makes layers that survive an out-of-memory in their backward; built as `Subject(setting)`."""

    def block(self, layer: int, primary: Backend) -> Block:
        """Layer `layer`, counted from 0: `primary` runs its forward and backward, wgpu its backward if that fails.

        Every block gets its own number. Blocks that are tested alone have numbers above those of the model's layers,
        so a subject may record by number which layers it has warned about.
        """
        ...

    def fallback(self) -> Backend:
        """The backend in WGSL that takes over. The falsifier runs a forward and a backward on it alone."""
        ...
