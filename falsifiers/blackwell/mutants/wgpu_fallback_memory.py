"""Mutants of F-BLACKWELL-WGPU-FALLBACK-001 that keep state from one backward to the next."""

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
    "ActivationNeverRuns",
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
    """Also runs the backward after a fault on wgpu, although CUDA had no fault then."""

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
    """Keeps uploads until the weights change, although two micro-batches have different activations."""

    class make_block(FallbackBlock):  # noqa: N801
        """Keeps activations together with the weights' versions."""

        _versions: ClassVar[list[int]] = []

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            versions = [weight._version for weight in weights.values()]
            if self._versions != versions or self._kept.q.shape != saved.q.shape:
                self._versions, self._kept = versions, saved  # type: ignore[misc]
            return super()._backward_on_wgpu(self._kept, weights, gradient)


class KeepsUploadedAttention(Fallback):
    """Uploads the weights of q and k once. In training the resulting error is small."""

    class make_block(FallbackBlock):  # noqa: N801
        """Reuses the first of these weights."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            if not hasattr(self, "_first"):
                self._first = {name: weight.detach().clone() for name, weight in weights.items() if name[0] in "qk"}
            return super()._backward_on_wgpu(saved, {**weights, **self._first}, gradient)


class LeaksUploads(Fallback):
    """Appends every upload to a list that is never cleared. On one GPU this takes memory from CUDA."""

    class make_block(FallbackBlock):  # noqa: N801
        """Keeps all uploads."""

        kept: ClassVar[list[Any]] = []

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            there = Saved(**{field.name: self._wgpu.upload(getattr(saved, field.name)) for field in fields(Saved)})
            self.kept.append(there)
            return super()._backward_on_wgpu(there, weights, gradient)


class OnceFallenAlwaysFalls(Fallback):
    """Takes every later error of a layer that fell through once for a lack of memory."""

    class make_block(FallbackBlock):  # noqa: N801
        """Remembers its warning."""

        def _falls_through(self, error: Exception) -> bool:
            return self._warned or super()._falls_through(error)


class _FirstTurns(WgpuBackend):
    """Looks up the rotary table by head size and base, but not by the number of positions."""

    def _turns_of(self, positions: int, half: int, theta: float) -> WgpuTensor:
        found = next((turns for key, turns in self._turns.items() if key[1:] == (half, theta)), None)
        return found if found is not None else super()._turns_of(positions, half, theta)


class TurnsAsForTheFirst(Fallback):
    """The rotary table has the length of the first sequence that fell through."""

    def __init__(self, setting: Setting) -> None:
        """Replace the backend by one with that defect."""
        super().__init__(setting)
        self._wgpu = _FirstTurns(setting.parameters["adapter"])


class UploadsInsideExcept(Fallback):
    """Computes outside of `except` but uploads inside it, while partial results still hold CUDA memory."""

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


class _NoActivation(WgpuBackend):
    """Allocates the activation's result and launches nothing."""

    def silu_gate(self, gate: Tensor, up: Tensor) -> Tensor:
        return self._run(lambda gate, up: [self._like(gate)], gate, up)[0]


class ActivationNeverRuns(Fallback):
    """One forward shader is never launched. The backward, which a fault takes, does not need it."""

    def __init__(self, setting: Setting) -> None:
        """Replace the backend by one with that defect."""
        super().__init__(setting)
        self._wgpu = _NoActivation(setting.parameters["adapter"])
