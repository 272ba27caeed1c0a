"""Fallbacks that fall too quietly or to the wrong place: mutants of F-BLACKWELL-WGPU-FALLBACK-001."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from falsifiers.blackwell.reference.backend import Backend, ProjectionGradients
from falsifiers.blackwell.reference.block import Block, Saved
from falsifiers.blackwell.reference.fallback import Fallback, FallbackBlock
from falsifiers.blackwell.reference.torch_backend import TorchBackend
from harness import Setting

__all__ = [
    "AddsPartialResults",
    "ComputesOnTheCpu",
    "FlushesSmallGradients",
    "ForgetsBiases",
    "ForgetsItsLayer",
    "HoldsWhatItHad",
    "KeepsQuiet",
    "KeepsUploadedWeights",
    "LastLayerOnTheCpu",
    "LeavesOutTheTail",
    "OnlyWeights",
    "RetriesOnCuda",
    "RoundsToTf32",
    "StaysOnWgpu",
    "TakesAnotherLayersActivations",
    "WarnsAfterRecovery",
    "WarnsOncePerProcess",
    "WarnsPerCall",
    "WidensBiases",
    "ZeroGradients",
]

Gradients = tuple[Tensor, dict[str, Tensor]]


class WarnsPerCall(Fallback):
    """Every fault is told again, in every step for the rest of the run."""

    class make_block(FallbackBlock):  # noqa: N801
        """Forgets that it has told."""

        def _warn(self, reason: str) -> None:
            self._warned = False
            super()._warn(reason)


class WarnsAfterRecovery(Fallback):
    """A backward that went well on CUDA makes the next fault news again."""

    class make_block(FallbackBlock):  # noqa: N801
        """Forgets that it has told once it has recovered."""

        def backward(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            """See `Block`."""
            self._fell = False
            found = super().backward(saved, weights, gradient)
            self._warned &= self._fell
            return found

        def _warn(self, reason: str) -> None:
            self._fell = True
            super()._warn(reason)


class WarnsOncePerProcess(Fallback):
    """One flag for all layers: nobody learns which others fell through."""

    class make_block(FallbackBlock):  # noqa: N801
        """Shares the flag."""

        told: ClassVar[list[int]] = []

        def _warn(self, reason: str) -> None:
            if not self.told:
                super()._warn(reason)
            self.told.append(self.layer)


class KeepsQuiet(Fallback):
    """The run is slow from now on, and nobody is told why."""

    class make_block(FallbackBlock):  # noqa: N801
        """Says nothing."""

        def _warn(self, reason: str) -> None:
            del reason


class ForgetsItsLayer(Fallback):
    """The warning comes once for each layer, and each says that it was layer 0."""

    class make_block(FallbackBlock):  # noqa: N801
        """Says 0."""

        def _warn(self, reason: str) -> None:
            layer, self.layer = self.layer, 0
            super()._warn(reason)
            self.layer = layer


class HoldsWhatItHad(Fallback):
    """wgpu is asked inside `except`: all that CUDA had computed before the fault is held, where memory is short."""

    class make_block(FallbackBlock):  # noqa: N801
        """Does not let go."""

        def backward(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            """See `Block`."""
            try:
                return Block.backward(self, saved, weights, gradient)
            except Exception as error:
                if not self._falls_through(error):
                    raise
                self._warn(f"{type(error).__name__}: {error}")
                return self._backward_on_wgpu(saved, weights, gradient)


class KeepsUploadedWeights(Fallback):
    """Weights go to wgpu once, to save the journey; the optimizer moves those on CUDA."""

    class make_block(FallbackBlock):  # noqa: N801
        """Remembers the first weights."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            if not hasattr(self, "_first"):
                self._first = {name: weight.detach().clone() for name, weight in weights.items()}
            return super()._backward_on_wgpu(saved, self._first, gradient)


class ZeroGradients(Fallback):
    """The layer stops learning, and the layers below it with it; the work on wgpu is done and thrown away."""

    class make_block(FallbackBlock):  # noqa: N801
        """Answers with zeros."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, of_weights = super()._backward_on_wgpu(saved, weights, gradient)
            return torch.zeros_like(of_x), {name: torch.zeros_like(found) for name, found in of_weights.items()}


class OnlyWeights(Fallback):
    """The gradients of weights are right; that of the input is what came from above, as if the block were none."""

    class make_block(FallbackBlock):  # noqa: N801
        """Passes the gradient through."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            return gradient.clone(), super()._backward_on_wgpu(saved, weights, gradient)[1]


class ForgetsBiases(Fallback):
    """The gradients of biases, which need a kernel of their own, stay 0."""

    class make_block(FallbackBlock):  # noqa: N801
        """Leaves the biases out."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, found = super()._backward_on_wgpu(saved, weights, gradient)
            return of_x, {name: torch.zeros_like(g) if name.endswith("bias") else g for name, g in found.items()}


class LeavesOutTheTail(Fallback):
    """Products are made of whole tiles of eight tokens, and the rows behind them keep the 0 that they began with."""

    class make_block(FallbackBlock):  # noqa: N801
        """Leaves out the rows of the input's gradient behind the last whole tile."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, found = super()._backward_on_wgpu(saved, weights, gradient)
            rows = of_x.flatten(0, 1)
            rows[len(rows) // 8 * 8 :] = 0.0
            return rows.view(of_x.shape), found


class FlushesSmallGradients(Fallback):
    """What is below 1e-4 is not worth its journey back, and no bound of 1e-4 will ever miss it."""

    class make_block(FallbackBlock):  # noqa: N801
        """Flushes to zero."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, found = super()._backward_on_wgpu(saved, weights, gradient)
            return of_x, {name: torch.where(g.abs() < 0.9e-4, 0.0, g) for name, g in found.items()}


class RoundsToTf32(Fallback):
    """What goes to wgpu is rounded to 10 bits of mantissa, as tensor cores would."""

    class make_block(FallbackBlock):  # noqa: N801
        """Rounds weights and gradient on the way."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            rounded = {name: _tf32(weight) for name, weight in weights.items()}
            return super()._backward_on_wgpu(saved, rounded, _tf32(gradient))


class StaysOnWgpu(Fallback):
    """One fault, and the layer never goes back to CUDA."""

    class make_block(FallbackBlock):  # noqa: N801
        """Remembers the fault for ever."""

        def backward(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            """See `Block`."""
            if self._warned:
                return self._backward_on_wgpu(saved, weights, gradient)
            return super().backward(saved, weights, gradient)


class RetriesOnCuda(Fallback):
    """The device that has just refused memory is asked for it once more; wgpu is a name in the log."""

    class make_block(FallbackBlock):  # noqa: N801
        """Tries again."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            return Block.backward(self, saved, weights, gradient)


class ComputesOnTheCpu(Fallback):
    """What falls back falls back to torch on the CPU, and the log says wgpu."""

    class make_block(FallbackBlock):  # noqa: N801
        """Computes where nobody asked it to."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            there = Saved(**{name: tensor.cpu() for name, tensor in vars(saved).items()})
            on_cpu = {name: weight.cpu() for name, weight in weights.items()}
            of_x, found = Block(self.shape, TorchBackend()).backward(there, on_cpu, gradient.cpu())
            return of_x.to(gradient.device), {name: g.to(gradient.device) for name, g in found.items()}


class LastLayerOnTheCpu(ComputesOnTheCpu):
    """Of a model only the last layer is computed elsewhere, where its upload did not fit."""

    class make_block(ComputesOnTheCpu.make_block):  # type: ignore[name-defined]  # noqa: N801
        """Knows how many there are."""

        layers: ClassVar[list[int]] = []

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            if self.layer + 1 == self.layers[0]:
                return super()._backward_on_wgpu(saved, weights, gradient)  # type: ignore[no-any-return]
            return FallbackBlock._backward_on_wgpu(self, saved, weights, gradient)

    def __init__(self, setting: Setting) -> None:
        """Read how many layers the model has."""
        super().__init__(setting)
        self.make_block.layers[:] = [setting.parameters["layers"]]


class WidensBiases(Fallback):
    """The gradients of biases, added up on the host, are left in float64."""

    class make_block(FallbackBlock):  # noqa: N801
        """Widens."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, found = super()._backward_on_wgpu(saved, weights, gradient)
            return of_x, {name: g.double() if name.endswith("bias") else g for name, g in found.items()}


class TakesAnotherLayersActivations(Fallback):
    """What the forward pass saved is looked up in one place for all layers, where the last one's lies."""

    class make_block(FallbackBlock):  # noqa: N801
        """Shares what was saved."""

        latest: ClassVar[list[Saved]] = []

        def forward(self, x: Tensor, weights: Mapping[str, Tensor]) -> tuple[Tensor, Saved]:
            """See `Block`."""
            output, saved = super().forward(x, weights)
            self.latest[:] = [saved]
            return output, saved

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            latest = self.latest[0]
            return super()._backward_on_wgpu(replace(saved, normed=latest.normed), weights, gradient)


class AddsPartialResults(Fallback):
    """Gradients that CUDA had finished before the fault were already added up, and are added again."""

    class make_block(FallbackBlock):  # noqa: N801
        """Keeps what was finished."""

        def __init__(self, shape: Any, primary: Backend, fallback: Any, layer: int) -> None:
            """Put an accumulator in between."""
            self._finished: dict[str, Tensor] = {}
            super().__init__(shape, _Accumulating(primary, self._finished), fallback, layer)

        def backward(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            """See `Block`."""
            self._finished.clear()
            return super().backward(saved, weights, gradient)

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, found = super()._backward_on_wgpu(saved, weights, gradient)
            return of_x, {name: g + self._finished[name] if name in self._finished else g for name, g in found.items()}


class _Accumulating:
    """A backend that notes the gradient of every weight it finishes."""

    def __init__(self, backend: Backend, finished: dict[str, Tensor]) -> None:
        self._backend = backend
        self._finished = finished

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def project_backward(
        self, projection: str, x: Tensor, weight: Tensor, gradient: Tensor, *, bias: bool
    ) -> ProjectionGradients:
        found = self._backend.project_backward(projection, x, weight, gradient, bias=bias)
        self._finished[f"{projection}.weight"] = found.weight
        return found


def _tf32(tensor: Tensor) -> Tensor:
    """Rounded to 10 bits of mantissa, as the tensor cores' inputs are."""
    bits = tensor.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
