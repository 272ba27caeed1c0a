"""Mutants of F-BLACKWELL-PREWARM-KEYS-001: the four keys that were wrong in aprender, and their relatives."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from falsifiers.blackwell.reference.kernel_cache import KernelCache, Loaded
from falsifiers.blackwell.reference.kernels.catalogue import block_kernels
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.prewarmed import PrewarmedBackends
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from falsifiers.blackwell.reference.shapes import BlockShape

__all__ = [
    "ConstantKey",
    "EpsLeftOut",
    "ForgetsAfterAStep",
    "ForgetsBackward",
    "HoldsTooFew",
    "MiscountsOne",
    "RopeAtOne",
    "SaysNothing",
    "WarmsNarrowTiles",
    "WarmsOtherEps",
    "WarmsTooMuch",
    "WarmsWithoutEps",
]


def _without_eps(key: str) -> str:
    return re.sub(r"_eps[0-9a-f]{8}", "", key)


class _ConstantKeyCache(KernelCache):
    def key(self, spec: KernelSpec) -> str:
        return "silu_forward"


class ConstantKey(PrewarmedBackends):
    """The key is a constant: the first kernel that is loaded answers for all."""

    cache_type = _ConstantKeyCache


class _WarmsWithoutEpsCache(KernelCache):
    def prewarm(self, specs: Iterable[KernelSpec]) -> None:
        super().prewarm(specs)
        self.kernels = {_without_eps(key): loaded for key, loaded in self.kernels.items()}


class WarmsWithoutEps(PrewarmedBackends):
    """The warm-up puts kernels under a key without eps, and steps look for one with it."""

    cache_type = _WarmsWithoutEpsCache


class _EpsLeftOutCache(KernelCache):
    def key(self, spec: KernelSpec) -> str:
        return _without_eps(spec.key)


class EpsLeftOut(PrewarmedBackends):
    """No key has an eps: teacher and student with different ones share a kernel."""

    cache_type = _EpsLeftOutCache


class _WarmsOtherEpsBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        super().prewarm(replace(shape, eps=1e-5))


class WarmsOtherEps(PrewarmedBackends):
    """Kernels are warmed for an eps of 1e-5, Llama's; Qwen2 has 1e-6."""

    backend_type = _WarmsOtherEpsBackend


class _RopeAtOneBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        self.cache.prewarm(_at(spec, 1) if spec.name == "rope" else spec for spec in block_kernels(shape))

    def _rotated(self, spec: KernelSpec, x: Tensor) -> Tensor:
        return super()._rotated(_at(spec, x.shape[-2]), x)


def _at(spec: KernelSpec, sequence: int) -> KernelSpec:
    return replace(spec, constants=(*spec.constants, ("SEQUENCE", sequence)))


class RopeAtOne(PrewarmedBackends):
    """RoPE is compiled for a sequence: warmed at 1, and run at another."""

    backend_type = _RopeAtOneBackend


class _ForgetsBackwardBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        self.cache.prewarm(spec for spec in block_kernels(shape) if "backward" not in spec.name)


class ForgetsBackward(PrewarmedBackends):
    """Only the forward pass is warmed up."""

    backend_type = _ForgetsBackwardBackend


class _ForgetfulCache(KernelCache):
    def launch(self, spec: KernelSpec, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
        super().launch(spec, grid, threads, *arguments)
        if spec.name == "add":
            self.kernels.pop(self.key(spec))


class ForgetsAfterAStep(PrewarmedBackends):
    """A kernel is dropped when it has run, and compiled again whenever it is asked for."""

    cache_type = _ForgetfulCache


class _WarmsTooMuchBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        for eps in (shape.eps, 1e-4):
            super().prewarm(replace(shape, eps=eps))


class WarmsTooMuch(PrewarmedBackends):
    """Kernels are warmed that no step asks for, to be on the safe side: memory and minutes for nothing."""

    backend_type = _WarmsTooMuchBackend


class _WarmsNarrowTilesBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        self.cache.prewarm(
            replace(spec, constants=tuple((name, 64 if name == "TILE" else size) for name, size in spec.constants))
            for spec in block_kernels(shape)
        )


class WarmsNarrowTiles(PrewarmedBackends):
    """Products are warmed with the tile of narrow results, and steps ask for the other where the result is wide."""

    backend_type = _WarmsNarrowTilesBackend


class _BoundedCache(KernelCache):
    def _fetch(self, key: str, spec: KernelSpec) -> Loaded:
        if len(self.kernels) >= 48:
            self.kernels.pop(next(iter(self.kernels)))
        return super()._fetch(key, spec)


class HoldsTooFew(PrewarmedBackends):
    """The cache holds 48 kernels, enough for a model, and drops the oldest: student and teacher have more."""

    cache_type = _BoundedCache


class _SilentCache(KernelCache):
    def _fetch(self, key: str, spec: KernelSpec) -> Loaded:
        logger = logging.getLogger("falsifiers.blackwell.reference.kernel_cache")
        logger.disabled = True
        try:
            return super()._fetch(key, spec)
        finally:
            logger.disabled = False


class SaysNothing(PrewarmedBackends):
    """Compiles without a line in the log."""

    cache_type = _SilentCache


class _HalfCountingCache(KernelCache):
    def _fetch(self, key: str, spec: KernelSpec) -> Loaded:
        before = self.compilations
        loaded = super()._fetch(key, spec)
        if spec.name == "add":
            self.compilations = before
        return loaded


class MiscountsOne(PrewarmedBackends):
    """The counter of compilations leaves a kernel out."""

    cache_type = _HalfCountingCache
