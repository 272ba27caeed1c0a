"""What F-BLACKWELL-PTX-001 is about: an engine that brings its kernels along, compiled for every GPU it supports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

__all__ = ["ArchivedEngine", "TrainedModel"]


class TrainedModel(Protocol):
    """A language model as `nn.Module`."""

    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer trains: embedding, last norm, and of each block as `BlockShape.parameters` has them."""
        ...

    def loss(self, tokens: Tensor) -> Tensor:
        """Cross entropy of every next token of ids [batch, sequence + 1], in nats a token."""
        ...


class ArchivedEngine(Protocol):
    """An engine with a kernel archive, built as `Engine(setting)`; until `start` it leaves CUDA alone."""

    def archive(self) -> Path:
        """The folder of the archive that it brings along, built where it has to be."""
        ...

    def start(self) -> TrainedModel:
        """Load every kernel, and put the model's weights on the device."""
        ...

    def compilations(self) -> int:
        """How often it says that it compiled a kernel since `start`."""
        ...

    def launched(self) -> Mapping[str, int]:
        """How often it says that it launched each kernel, by key, since `start`."""
        ...
