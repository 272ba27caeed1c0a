"""Mutants of F-BLACKWELL-PREWARM-KEYS-001: the four wrong keys of aprender, and similar defects."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from falsifiers.blackwell.reference.kernel_cache import KernelCache, Launch, Source
from falsifiers.blackwell.reference.kernels.catalogue import block_kernels, causal_softmax
from falsifiers.blackwell.reference.kernels.nvrtc import Image
from falsifiers.blackwell.reference.kernels.spec import KernelSpec
from falsifiers.blackwell.reference.prewarmed import PrewarmedBackends, Rehearsal
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.reference.torch_backend import TorchBackend

__all__ = [
    "CompilesBeforeLooking",
    "ConstantKey",
    "CountsOneForAnother",
    "EpsLeftOut",
    "ForgetsAfterAStep",
    "ForgetsBackward",
    "HoldsTooFew",
    "ImagesWithoutEps",
    "LeavesSiluToTorch",
    "LongRowsForgotten",
    "MiscountsOne",
    "NamesAnother",
    "OneEpsForAll",
    "RopeAtOne",
    "RowsLeftOut",
    "SaysNothing",
    "WarmsNarrowAtTheEdge",
    "WarmsNarrowTiles",
    "WarmsOtherEps",
    "WarmsTooMuch",
    "WarmsWithoutEps",
]

_EPS = 1e-6


def _without_eps(key: str) -> str:
    return re.sub(r"_eps[0-9a-f]{8}", "", key)


class _ConstantKeyCache(KernelCache):
    def key(self, spec: KernelSpec) -> str:
        return "silu_forward"


class ConstantKey(PrewarmedBackends):
    """The key is a constant, so the first loaded kernel is used for all."""

    cache_type = _ConstantKeyCache


class _WarmsWithoutEpsCache(KernelCache):
    def prewarm(self, specs: Iterable[KernelSpec]) -> None:
        super().prewarm(specs)
        self.kernels = {_without_eps(key): loaded for key, loaded in self.kernels.items()}


class WarmsWithoutEps(PrewarmedBackends):
    """The warm-up stores kernels under keys without eps; steps look for keys with it."""

    cache_type = _WarmsWithoutEpsCache


class _EpsLeftOutCache(KernelCache):
    def key(self, spec: KernelSpec) -> str:
        return _without_eps(spec.key)


class EpsLeftOut(PrewarmedBackends):
    """Keys have no eps, so teacher and student with different eps share a kernel."""

    cache_type = _EpsLeftOutCache


class _WarmsOtherEpsBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        super().prewarm(replace(shape, eps=1e-5))


class WarmsOtherEps(PrewarmedBackends):
    """Warms kernels for an eps of 1e-5, as in Llama; Qwen2 has 1e-6."""

    backend_type = _WarmsOtherEpsBackend


class _OneEpsBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        super().prewarm(replace(shape, eps=_EPS))

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return super().rms_norm(x, weight, _EPS)

    def rms_norm_backward(self, x: Tensor, weight: Tensor, gradient: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return super().rms_norm_backward(x, weight, gradient, _EPS)


class OneEpsForAll(PrewarmedBackends):
    """Every norm has Qwen2's eps, whatever the model has."""

    backend_type = _OneEpsBackend


class _RopeAtOneBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        self.cache.prewarm(_at(spec, 1) if spec.name == "rope" else spec for spec in block_kernels(shape))

    def _rotated(self, spec: KernelSpec, x: Tensor) -> Tensor:
        return super()._rotated(_at(spec, x.shape[-2]), x)


def _at(spec: KernelSpec, sequence: int) -> KernelSpec:
    return replace(spec, constants=(*spec.constants, ("SEQUENCE", sequence)))


class RopeAtOne(PrewarmedBackends):
    """RoPE is compiled for one sequence length: warmed for 1, run for another."""

    backend_type = _RopeAtOneBackend


class _ForgetsBackwardBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        self.cache.prewarm(spec for spec in block_kernels(shape) if "backward" not in spec.name)


class ForgetsBackward(PrewarmedBackends):
    """Warms only the kernels of the forward pass."""

    backend_type = _ForgetsBackwardBackend


class _ForgetfulCache(KernelCache):
    def launch(self, spec: KernelSpec, grid: tuple[int, int, int], threads: int, *arguments: object) -> None:
        super().launch(spec, grid, threads, *arguments)
        if spec.name == "add":
            self.kernels.pop(self.key(spec))


class ForgetsAfterAStep(PrewarmedBackends):
    """Drops a kernel after its launch, and compiles it again for the next one."""

    cache_type = _ForgetfulCache


class _WarmsTooMuchBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        for eps in (shape.eps, 1e-4):
            super().prewarm(replace(shape, eps=eps))


class WarmsTooMuch(PrewarmedBackends):
    """Warms kernels that no step requests, which costs memory and minutes."""

    backend_type = _WarmsTooMuchBackend


class _WarmsNarrowTilesBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        self.cache.prewarm(
            replace(spec, constants=tuple((name, 64 if name == "TILE" else size) for name, size in spec.constants))
            for spec in block_kernels(shape)
        )


class WarmsNarrowTiles(PrewarmedBackends):
    """Warms products with the tile of narrow results, while steps request the other tile for wide ones."""

    backend_type = _WarmsNarrowTilesBackend


class _BoundedCache(KernelCache):
    def _fetch(self, key: str, spec: KernelSpec) -> Launch:
        if len(self.kernels) >= 48:
            self.kernels.pop(next(iter(self.kernels)))
        return super()._fetch(key, spec)


class HoldsTooFew(PrewarmedBackends):
    """The cache holds 48 kernels, enough for one model, and drops the oldest; student and teacher need more."""

    cache_type = _BoundedCache


class _SilentCache(KernelCache):
    def _fetch(self, key: str, spec: KernelSpec) -> Launch:
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
    def _fetch(self, key: str, spec: KernelSpec) -> Launch:
        before = self.compilations
        loaded = super()._fetch(key, spec)
        if spec.name == "add":
            self.compilations = before
        return loaded


class MiscountsOne(PrewarmedBackends):
    """The counter of compilations omits a kernel."""

    cache_type = _HalfCountingCache


class _HastyCache(KernelCache):
    def _loaded(self, spec: KernelSpec) -> Launch:
        self.source.image(spec, self.device.sm or self.fallback_sm)
        return super()._loaded(spec)


class CompilesBeforeLooking(PrewarmedBackends):
    """Compiles before every launch, then uses the cached kernel; nothing is loaded, counted or logged."""

    cache_type = _HastyCache


class _MisnamingCache(KernelCache):
    def _fetch(self, key: str, spec: KernelSpec) -> Launch:
        return super()._fetch("silu_forward", spec)


class NamesAnother(PrewarmedBackends):
    """Logs every compilation, always with the name of the same kernel."""

    cache_type = _MisnamingCache


class _UnevenCache(KernelCache):
    def _fetch(self, key: str, spec: KernelSpec) -> Launch:
        loaded = super()._fetch(key, spec)
        self.compilations += {"add": -1, "silu_gate": 1}.get(spec.name, 0)
        return loaded


class CountsOneForAnother(PrewarmedBackends):
    """Counts one kernel twice and another not at all; the sum is right."""

    cache_type = _UnevenCache


class _RowsLeftOutCache(KernelCache):
    def key(self, spec: KernelSpec) -> str:
        return replace(spec, constants=tuple(one for one in spec.constants if one[0] != "SIZE_M")).key


class RowsLeftOut(PrewarmedBackends):
    """Keys omit the rows of the result, so two models of one width share the gradient of a weight."""

    cache_type = _RowsLeftOutCache


class _ImagesWithoutEps:
    """A source that keeps its images under a key without eps."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.kept: dict[str, tuple[Image, str | None]] = {}

    def image(self, spec: KernelSpec, sm: int) -> tuple[Image, str | None]:
        """See `Source`."""
        name = _without_eps(spec.key)
        if name not in self.kept:
            self.kept[name] = self.source.image(spec, sm)
        return self.kept[name]


class ImagesWithoutEps(PrewarmedBackends):
    """Kernels have right keys, but the images behind them are kept without eps."""

    def cache(self) -> KernelCache:
        """See `Prewarmed`."""
        source, device = self._where()
        return KernelCache(_ImagesWithoutEps(source), device)

    def rehearsed(self) -> KernelCache:
        """See `Prewarmed`."""
        rehearsal = Rehearsal()
        return KernelCache(_ImagesWithoutEps(rehearsal), rehearsal)


class _NarrowAtTheEdgeBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        self.cache.prewarm(
            replace(spec, constants=tuple((name, 64 if name == "TILE" else size) for name, size in spec.constants))
            if ("SIZE_N", 2048) in spec.constants
            else spec
            for spec in block_kernels(shape)
        )


class WarmsNarrowAtTheEdge(PrewarmedBackends):
    """The warm-up takes the wide tile above 2048, the steps from 2048 on."""

    backend_type = _NarrowAtTheEdgeBackend


class _LongRowsBackend(PtxBackend):
    def causal_softmax(self, scores: Tensor, scale: float) -> Tensor:
        if scores.shape[-1] <= 1024:
            return super().causal_softmax(scores, scale)
        out = torch.empty_like(scores)
        long = replace(causal_softmax(), name="causal_softmax_long")
        self._launch(long, scores[..., 0].numel(), scores, out, scale, scores.shape[-1])
        return out


class LongRowsForgotten(PrewarmedBackends):
    """Rows of more than 1024 use another kernel, which the warm-up omits."""

    backend_type = _LongRowsBackend


class _SiluOfTorchBackend(PtxBackend):
    def prewarm(self, shape: BlockShape) -> None:
        self.cache.prewarm(spec for spec in block_kernels(shape) if spec.source.partition("_")[0] != "silu")

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return TorchBackend().silu_gate(gate, up)

    def silu_gate_backward(self, gate: Tensor, up: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return TorchBackend().silu_gate_backward(gate, up, gradient)


class LeavesSiluToTorch(PrewarmedBackends):
    """torch computes the activation; its kernels are neither warmed nor requested."""

    backend_type = _SiluOfTorchBackend
