"""Fallbacks with a memory, from one backward to the next: mutants of F-BLACKWELL-WGPU-FALLBACK-001."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from torch import Tensor

from falsifiers.blackwell.reference.block import Block, Saved
from falsifiers.blackwell.reference.fallback import Fallback, FallbackBlock
from falsifiers.blackwell.reference.wgpu_backend import WgpuBackend
from falsifiers.blackwell.reference.wgpu_tensor import WgpuTensor
from harness import Setting

__all__ = [
    "CoolsDown",
    "KeepsUploadedActivations",
    "KeepsUploadedAttention",
    "LeaksUploads",
    "OnceFallenAlwaysFalls",
    "TurnsAsForTheFirst",
    "UploadsInsideExcept",
]

Gradients = tuple[Tensor, dict[str, Tensor]]


class CoolsDown(Fallback):
    """CUDA is given a rest after a fault: the next backward is made on wgpu too, and no fault is told of it."""

    class make_block(FallbackBlock):  # noqa: N801 (overrides an attribute)
        """Remembers the fault for one more backward."""

        _rests = False

        def backward(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            """See `Block`."""
            if self._rests:
                self._rests = False
                return self._backward_on_wgpu(saved, weights, gradient)
            return super().backward(saved, weights, gradient)

        def _warn(self, reason: str) -> None:
            self._rests = True
            super()._warn(reason)


class KeepsUploadedActivations(Fallback):
    """Uploads are good until the weights change; but two micro-batches of one step have other activations."""

    class make_block(FallbackBlock):  # noqa: N801
        """Remembers what was saved together with the weights' versions."""

        _versions: ClassVar[list[int]] = []

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            versions = [weight._version for weight in weights.values()]
            if self._versions != versions or self._kept.q.shape != saved.q.shape:
                self._versions, self._kept = versions, saved  # type: ignore[misc]
            return super()._backward_on_wgpu(self._kept, weights, gradient)


class KeepsUploadedAttention(Fallback):
    """The small weights, those of q and k, go to wgpu once; in a model that trains what they spoil is small as well."""

    class make_block(FallbackBlock):  # noqa: N801
        """Remembers the first of them."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            if not hasattr(self, "_first"):
                self._first = {name: weight.detach().clone() for name, weight in weights.items() if name[0] in "qk"}
            return super()._backward_on_wgpu(saved, {**weights, **self._first}, gradient)


class LeaksUploads(Fallback):
    """Every upload is entered into a list, for a cache that nobody wrote; on one GPU that is CUDA's memory."""

    class make_block(FallbackBlock):  # noqa: N801
        """Remembers all."""

        kept: ClassVar[list[Any]] = []

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            there = Saved(**{field.name: self._wgpu.upload(getattr(saved, field.name)) for field in fields(Saved)})
            self.kept.append(there)
            return super()._backward_on_wgpu(there, weights, gradient)


class OnceFallenAlwaysFalls(Fallback):
    """A layer that fell through is taken for lost: whatever is wrong with it later is a lack of memory."""

    class make_block(FallbackBlock):  # noqa: N801
        """Remembers that it was told."""

        def _falls_through(self, error: Exception) -> bool:
            return self._warned or super()._falls_through(error)


class _FirstTurns(WgpuBackend):
    """Looks the rotary embedding's table up by head and base, and not by the number of positions."""

    def _turns_of(self, positions: int, half: int, theta: float) -> WgpuTensor:
        found = next((turns for key, turns in self._turns.items() if key[1:] == (half, theta)), None)
        return found if found is not None else super()._turns_of(positions, half, theta)


class TurnsAsForTheFirst(Fallback):
    """The rotary embedding's table is as long as the first sequence was that fell through."""

    def __init__(self, setting: Setting) -> None:
        """Put that backend in place of the right one."""
        super().__init__(setting)
        self._wgpu = _FirstTurns(setting.parameters["adapter"])


class UploadsInsideExcept(Fallback):
    """The work is done outside of `except`; the uploads for it are made inside, beside all that CUDA had computed."""

    class make_block(FallbackBlock):  # noqa: N801
        """Uploads too early."""

        def backward(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            """See `Block`."""
            try:
                return Block.backward(self, saved, weights, gradient)
            except Exception as error:
                if not self._falls_through(error):
                    raise
                self._warn(f"{type(error).__name__}: {error}")
                upload = self._wgpu.upload
                there = Saved(**{field.name: upload(getattr(saved, field.name)) for field in fields(Saved)})
                weights_there = {name: upload(weight) for name, weight in weights.items()}
            return self._backward_on_wgpu(there, weights_there, gradient)
