"""What F-BLACKWELL-ARCHIVE-001 needs from a subject: an engine that ships its kernels compiled for every GPU."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn


class TrainedModel(Protocol):
    """A language model, an `nn.Module`."""

    def parameters(self) -> list[nn.Parameter]:
        """The trained parameters: embedding, last norm, and those of `BlockShape.parameters` for each block."""
        ...

    def loss(self, tokens: Tensor) -> Tensor:
        """Cross entropy of every next token of ids [batch, sequence + 1], in nats per token."""
        ...


class ArchivedEngine(Protocol):
    """An engine with a kernel archive; built as `Subject(setting)`. It does not use CUDA before `start`."""

    def archive(self) -> Path:
        """The folder of the archive that the engine ships, built if necessary."""
        ...

    def start(self) -> TrainedModel:
        """Load every kernel, and put the model's weights on the device."""
        ...

    def compilations(self) -> int:
        """The number of kernels compiled since `start`, by the engine's own count; 0 before."""
        ...

    def launched(self) -> Mapping[str, int]:
        """The number of launches of each kernel since `start`, by key, by the engine's own count."""
        ...
