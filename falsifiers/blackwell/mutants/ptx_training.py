"""Mutants of F-BLACKWELL-PTX-001 whose archive is perfect, and whose training makes another use of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor, nn

from falsifiers.blackwell.reference.backend import ProjectionGradients
from falsifiers.blackwell.reference.block import Block
from falsifiers.blackwell.reference.engine import Engine
from falsifiers.blackwell.reference.kernel_archive import Archive
from falsifiers.blackwell.reference.kernel_cache import ArchiveSource, KernelCache, Source
from falsifiers.blackwell.reference.model import LanguageModel
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from falsifiers.blackwell.reference.torch_backend import TorchBackend

__all__ = [
    "AddsToGradient",
    "CompilesInAChildAtStart",
    "LeavesABlockOut",
    "LoadsFromElsewhere",
    "NormInBfloat16",
    "TorchAfterAStep",
]


class LoadsFromElsewhere(Engine):
    """Images come from a folder that an earlier run left, and the archive beside it is only shown."""

    def archive(self) -> Path:
        """See `Engine`."""
        folder = super().archive()
        if not self._elsewhere.exists():
            shutil.copytree(folder, self._elsewhere)
        return folder

    def source(self) -> Source:
        """See `Engine`."""
        return ArchiveSource(Archive.open(self._elsewhere))

    @property
    def _elsewhere(self) -> Path:
        return self.setting.workspace / "left-by-an-earlier-run"


class CompilesInAChildAtStart(Engine):
    """The warm-up has a kernel compiled by a child process, and then loads what was there anyway."""

    def prewarm(self, backend: PtxBackend) -> None:
        """See `Engine`."""
        child = (
            "from falsifiers.blackwell.reference.kernels.catalogue import add; "
            "from falsifiers.blackwell.reference.kernels.nvrtc import compile_kernel; compile_kernel(add(), 90)"
        )
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        subprocess.run([sys.executable, "-c", child], env={**os.environ, **path}, check=True)
        super().prewarm(backend)


class _Impatient(PtxBackend):
    """Its own kernels make the queries, keys and values once."""

    def __init__(self, cache: KernelCache) -> None:
        super().__init__(cache)
        self.made: set[str] = set()

    def project(self, projection: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if projection not in self.made or projection not in ("q", "k", "v"):
            self.made.add(projection)
            return super().project(projection, x, weight, bias)
        return TorchBackend().project(projection, x, weight, bias)


class TorchAfterAStep(Engine):
    """After the first step torch makes queries, keys and values: every kernel was launched, and few are."""

    def block(self, backend: PtxBackend) -> Block:
        """See `Engine`."""
        return Block(self.shape, _Impatient(backend.cache))


class _Adding(PtxBackend):
    """One weight's gradient is written over what the step before left in its buffer."""

    def __init__(self, cache: KernelCache) -> None:
        super().__init__(cache)
        self.left: Tensor | None = None

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        found = super().project_backward(projection, x, weight, gradient, bias=bias)
        if projection == "o":
            self.left = found.weight if self.left is None else found.weight + self.left
            return found._replace(weight=self.left.clone())
        return found


class AddsToGradient(Engine):
    """A gradient is added to that of the step before: right in the first step, and wrong from the second on."""

    def block(self, backend: PtxBackend) -> Block:
        """See `Engine`."""
        return Block(self.shape, _Adding(backend.cache))


class LeavesABlockOut(Engine):
    """The last block is not put on the device, and the others train: an upload that failed, and was passed over."""

    def start(self) -> LanguageModel:
        """See `Engine`."""
        model = super().start()
        del model.blocks[-1]
        return model


class _NarrowNorm(LanguageModel):
    def forward(self, tokens: Tensor) -> Tensor:
        """See `LanguageModel`."""
        x = F.embedding(tokens, self.embedding)
        for block in self.blocks:
            x = block(x)
        return F.rms_norm(x, (self.shape.hidden,), self.norm.float(), self.shape.eps) @ self.embedding.T


class NormInBfloat16(Engine):
    """One weight of all, the last norm's, is kept in bfloat16."""

    def start(self) -> LanguageModel:
        """See `Engine`."""
        model = super().start()
        model.norm = nn.Parameter(model.norm.data.bfloat16())
        model.__class__ = _NarrowNorm
        return model
