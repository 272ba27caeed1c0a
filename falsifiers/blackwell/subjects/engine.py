"""What F-BLACKWELL-ENGINE-CUBLAS-001, -ALLOC-001 and -PREWARM-001 need from a subject."""

from collections.abc import Mapping
from typing import Protocol, Self

from torch import Tensor

from falsifiers.blackwell.subjects.ptx import WatchedEngine


class ObservedEngine(WatchedEngine, Protocol):
    """An engine that a command starts. It knows nothing of the recorder."""

    @property
    def integrated(self) -> bool:
        """Whether the device shares the host's memory, as the driver says; after `prepare`."""
        ...

    def products(self) -> Mapping[str, Mapping[str, Tensor]]:
        """The products that the engine dumped, by file: tensors by name.

        Raises:
            NotObserved: it dumped none.
        """
        ...

    def without_library(self) -> Self:
        """Another run of the engine, in which no launch by cuBLAS between cuProfilerStart and -Stop is made."""
        ...
