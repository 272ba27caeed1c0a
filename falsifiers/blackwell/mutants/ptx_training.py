"""Mutants of F-BLACKWELL-ARCHIVE-001 with a perfect archive, whose training uses it wrongly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
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
    "CountsBeforeItsStart",
    "CountsOneTokenMore",
    "LeavesABlockOut",
    "LinearAboveTwo",
    "LoadsFromElsewhere",
    "MaximumOfTheFirstKeys",
    "NormInBfloat16",
    "RoundsAGradient",
    "TorchAfterAStep",
]


class LoadsFromElsewhere(Engine):
    """Loads images from a folder of an earlier run, and only shows the archive."""

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


class CountsBeforeItsStart(Engine):
    """Reports a compilation before there is a cache that could compile, so that its count means nothing."""

    def compilations(self) -> int:
        """See `Engine`."""
        return 1 if self.cache is None else super().compilations()


class CompilesInAChildAtStart(Engine):
    """A child process compiles a kernel during the warm-up, although the archive has it."""

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
    """Uses its own kernels for queries, keys and values once, then torch."""

    def __init__(self, cache: KernelCache) -> None:
        super().__init__(cache)
        self.made: set[str] = set()

    def project(self, projection: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if projection not in self.made or projection not in ("q", "k", "v"):
            self.made.add(projection)
            return super().project(projection, x, weight, bias)
        return TorchBackend().project(projection, x, weight, bias)


class TorchAfterAStep(Engine):
    """After the first step torch computes queries, keys and values. Every kernel was launched, but too rarely."""

    def block(self, backend: PtxBackend) -> Block:
        """See `Engine`."""
        return Block(self.shape, _Impatient(backend.cache))


class _Adding(PtxBackend):
    """Adds one weight's gradient to what the previous step left in its buffer."""

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
    """Adds a gradient to that of the previous step: right in the first step, wrong from the second on."""

    def block(self, backend: PtxBackend) -> Block:
        """See `Engine`."""
        return Block(self.shape, _Adding(backend.cache))


class _Rounding(PtxBackend):
    """Rounds one weight's gradient to bfloat16."""

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        found = super().project_backward(projection, x, weight, gradient, bias=bias)
        return found._replace(weight=found.weight.bfloat16().float()) if projection == "down" else found


class RoundsAGradient(Engine):
    """Has one gradient of all in bfloat16."""

    def block(self, backend: PtxBackend) -> Block:
        """See `Engine`."""
        return Block(self.shape, _Rounding(backend.cache))


class _Shortsighted(PtxBackend):
    """Launches its own softmax; what it goes on with has the maximum of four keys subtracted."""

    def causal_softmax(self, scores: Tensor, scale: float) -> Tensor:
        super().causal_softmax(scores, scale)
        keys = scores.shape[-1]
        scaled = scale * scores
        seen = torch.ones(keys, keys, dtype=torch.bool, device=scores.device).tril().repeat(scores.shape[-2] // keys, 1)
        powers = (scaled - scaled[..., :4].amax(dim=-1, keepdim=True)).exp().where(seen, 0.0)
        return powers / powers.sum(dim=-1, keepdim=True)


class MaximumOfTheFirstKeys(Engine):
    """The softmax subtracts the maximum of the first four keys: right as long as the scores of the rest are alike."""

    def block(self, backend: PtxBackend) -> Block:
        """See `Engine`."""
        return Block(self.shape, _Shortsighted(backend.cache))


class _Linear(PtxBackend):
    """Launches its own gate; of large gates it goes on with other numbers."""

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return torch.where(gate > 2.0, gate * up, super().silu_gate(gate, up))


class LinearAboveTwo(Engine):
    """The activation is the identity above 2: an error of 12 % there, and none where gates are as small as usual."""

    def block(self, backend: PtxBackend) -> Block:
        """See `Engine`."""
        return Block(self.shape, _Linear(backend.cache))


class LeavesABlockOut(Engine):
    """Trains without the last block, as after an upload that failed and was ignored."""

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
    """Keeps one weight, the last norm's, in bfloat16."""

    def start(self) -> LanguageModel:
        """See `Engine`."""
        model = super().start()
        model.norm = nn.Parameter(model.norm.data.bfloat16())
        model.__class__ = _NarrowNorm
        return model


class _Thinning(LanguageModel):
    def loss(self, tokens: Tensor) -> Tensor:
        """See `LanguageModel`."""
        return super().loss(tokens) * (1.0 - 1.0 / tokens.numel())


class CountsOneTokenMore(Engine):
    """Divides the loss by one token too many, so it and all gradients are too small."""

    def start(self) -> LanguageModel:
        """See `Engine`."""
        model = super().start()
        model.__class__ = _Thinning
        return model
