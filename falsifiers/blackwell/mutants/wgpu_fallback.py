"""Mutants of F-BLACKWELL-WGPU-FALLBACK-001: wrong warnings, wrong gradients, and work on the wrong device."""

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
    """Warns at every fault, for the rest of the run."""

    class make_block(FallbackBlock):  # noqa: N801
        """Forgets that it has warned."""

        def _warn(self, reason: str) -> None:
            self._warned = False
            super()._warn(reason)


class WarnsAfterRecovery(Fallback):
    """Warns again after a backward that succeeded on CUDA."""

    class make_block(FallbackBlock):  # noqa: N801
        """Forgets that it has warned once CUDA works again."""

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
    """Warns once for all layers, so the log does not name the others."""

    class make_block(FallbackBlock):  # noqa: N801
        """Shares one flag among all layers."""

        told: ClassVar[list[int]] = []

        def _warn(self, reason: str) -> None:
            if not self.told:
                super()._warn(reason)
            self.told.append(self.layer)


class KeepsQuiet(Fallback):
    """Never warns, although the run is slow from then on."""

    class make_block(FallbackBlock):  # noqa: N801
        """Logs nothing."""

        def _warn(self, reason: str) -> None:
            del reason


class ForgetsItsLayer(Fallback):
    """Warns once per layer, but always names layer 0."""

    class make_block(FallbackBlock):  # noqa: N801
        """Names layer 0."""

        def _warn(self, reason: str) -> None:
            layer, self.layer = self.layer, 0
            super()._warn(reason)
            self.layer = layer


class HoldsWhatItHad(Fallback):
    """Calls wgpu inside `except`, which keeps the partial results on CUDA alive while memory is short."""

    class make_block(FallbackBlock):  # noqa: N801
        """Keeps the exception alive."""

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
    """Uploads weights to wgpu once, although the optimizer changes them on CUDA."""

    class make_block(FallbackBlock):  # noqa: N801
        """Reuses the first weights."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            if not hasattr(self, "_first"):
                self._first = {name: weight.detach().clone() for name, weight in weights.items()}
            return super()._backward_on_wgpu(saved, self._first, gradient)


class ZeroGradients(Fallback):
    """Runs the backward on wgpu and returns zeros, so this layer and those below stop learning."""

    class make_block(FallbackBlock):  # noqa: N801
        """Returns zeros."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, of_weights = super()._backward_on_wgpu(saved, weights, gradient)
            return torch.zeros_like(of_x), {name: torch.zeros_like(found) for name, found in of_weights.items()}


class OnlyWeights(Fallback):
    """Gradients of weights are right; that of the input is the incoming gradient, as if there were no block."""

    class make_block(FallbackBlock):  # noqa: N801
        """Passes the gradient through."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            return gradient.clone(), super()._backward_on_wgpu(saved, weights, gradient)[1]


class ForgetsBiases(Fallback):
    """Gradients of biases, which need a kernel of their own, stay 0."""

    class make_block(FallbackBlock):  # noqa: N801
        """Sets gradients of biases to 0."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, found = super()._backward_on_wgpu(saved, weights, gradient)
            return of_x, {name: torch.zeros_like(g) if name.endswith("bias") else g for name, g in found.items()}


class LeavesOutTheTail(Fallback):
    """Computes only whole tiles of eight tokens; the rows after them stay 0."""

    class make_block(FallbackBlock):  # noqa: N801
        """Clears the rows of the input's gradient after the last whole tile."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, found = super()._backward_on_wgpu(saved, weights, gradient)
            rows = of_x.flatten(0, 1)
            rows[len(rows) // 8 * 8 :] = 0.0
            return rows.view(of_x.shape), found


class FlushesSmallGradients(Fallback):
    """Flushes gradients below 0.9e-4 to 0, which no absolute bound of 1e-4 detects."""

    class make_block(FallbackBlock):  # noqa: N801
        """Flushes to zero."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, found = super()._backward_on_wgpu(saved, weights, gradient)
            return of_x, {name: torch.where(g.abs() < 0.9e-4, 0.0, g) for name, g in found.items()}


class RoundsToTf32(Fallback):
    """Rounds uploads to 10 bits of mantissa, as tensor cores do."""

    class make_block(FallbackBlock):  # noqa: N801
        """Rounds weights and gradient before the upload."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            rounded = {name: _tf32(weight) for name, weight in weights.items()}
            return super()._backward_on_wgpu(saved, rounded, _tf32(gradient))


class StaysOnWgpu(Fallback):
    """After one fault the layer never uses CUDA again."""

    class make_block(FallbackBlock):  # noqa: N801
        """Remembers the fault forever."""

        def backward(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            """See `Block`."""
            if self._warned:
                return self._backward_on_wgpu(saved, weights, gradient)
            return super().backward(saved, weights, gradient)


class RetriesOnCuda(Fallback):
    """Retries on CUDA, which has just refused memory; wgpu appears only in the log."""

    class make_block(FallbackBlock):  # noqa: N801
        """Runs the primary backend again."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            return Block.backward(self, saved, weights, gradient)


class ComputesOnTheCpu(Fallback):
    """Falls back to torch on the CPU, and logs wgpu."""

    class make_block(FallbackBlock):  # noqa: N801
        """Computes on the CPU."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            there = Saved(**{name: tensor.cpu() for name, tensor in vars(saved).items()})
            on_cpu = {name: weight.cpu() for name, weight in weights.items()}
            of_x, found = Block(self.shape, TorchBackend()).backward(there, on_cpu, gradient.cpu())
            return of_x.to(gradient.device), {name: g.to(gradient.device) for name, g in found.items()}


class LastLayerOnTheCpu(ComputesOnTheCpu):
    """Computes only the last layer of a model on the CPU, where its upload did not fit."""

    class make_block(ComputesOnTheCpu.make_block):  # type: ignore[name-defined]  # noqa: N801
        """Knows the number of layers."""

        layers: ClassVar[list[int]] = []

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            if self.layer + 1 == self.layers[0]:
                return super()._backward_on_wgpu(saved, weights, gradient)  # type: ignore[no-any-return]
            return FallbackBlock._backward_on_wgpu(self, saved, weights, gradient)

    def __init__(self, setting: Setting) -> None:
        """Read the model's number of layers."""
        super().__init__(setting)
        self.make_block.layers[:] = [setting.parameters["layers"]]


class WidensBiases(Fallback):
    """Leaves gradients of biases, which are summed on the host, in float64."""

    class make_block(FallbackBlock):  # noqa: N801
        """Widens to float64."""

        def _backward_on_wgpu(self, saved: Saved, weights: Mapping[str, Tensor], gradient: Tensor) -> Gradients:
            of_x, found = super()._backward_on_wgpu(saved, weights, gradient)
            return of_x, {name: g.double() if name.endswith("bias") else g for name, g in found.items()}


class TakesAnotherLayersActivations(Fallback):
    """Keeps saved activations in one place for all layers, so the last layer's are used."""

    class make_block(FallbackBlock):  # noqa: N801
        """Shares the saved activations."""

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
    """Adds gradients that CUDA finished before the fault to those of wgpu."""

    class make_block(FallbackBlock):  # noqa: N801
        """Keeps finished gradients."""

        def __init__(self, shape: Any, primary: Backend, fallback: Any, layer: int) -> None:
            """Wrap the primary backend in an accumulator."""
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
    """A backend that records the gradient of every weight it finishes."""

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
