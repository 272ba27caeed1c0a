"""What was believed of a device's memory and arithmetic; functions are right with `mended`."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own abbreviation
from torch import Tensor

from falsifiers.blackwell.reference.allocator import IntegratedRule
from falsifiers.blackwell.reference.kernel_cache import KernelCache
from falsifiers.blackwell.reference.prewarmed import PrewarmedBackends
from falsifiers.blackwell.reference.ptx_backend import PtxBackend
from falsifiers.blackwell.reference.shapes import BlockShape
from falsifiers.blackwell.subjects.alloc_unified import Allocator, Device
from falsifiers.corpus.judged import Switch
from falsifiers.distill.reference.trainer import Distillation
from falsifiers.nanochat.device_subjects import Candidate, Run
from falsifiers.nanochat.reference.tuner import CheckedTuner
from falsifiers.recsys.reference.accounts import Accounting
from harness import Setting

__all__ = [
    "FirstKernelCompiles", "FitsByAnotherDevice", "LostInTransfer", "ManagedByCapability", "NameInsideAName",
    "history_of_losses", "mse_ignores_strides", "rounded_factors", "weight_ignores_strides",
]  # fmt: skip

Function = Callable[..., Tensor]


class ManagedByCapability(IntegratedRule):
    """Managed memory is chosen by the compute capability, which a discrete GPU can have as well."""

    def choose(self, device: Device, override: str | None) -> Allocator:
        """From 10.0 on."""
        right = super().choose(device, override)
        if override in ("0", "1"):
            return right
        is_new = device.unified_addressing and device.capability >= (10, 0)
        return Allocator.MANAGED if is_new else Allocator.PLAIN


class NameInsideAName(Accounting):
    """The first known name that the device's name contains decides, and a GB200 contains B200."""

    def peak(self, name: str) -> float:
        """Of the first one."""
        if "B200" in name.upper():
            return super().peak("B200")
        return super().peak(name)


class _OtherWarmth(PtxBackend):
    """Warms kernels for another epsilon than the model's."""

    def prewarm(self, shape: BlockShape) -> None:
        """With the usual one."""
        super().prewarm(dataclasses.replace(shape, eps=1e-5))


class FirstKernelCompiles(PrewarmedBackends):
    """Kernels are compiled at the first step, since those that were warmed have other keys."""

    def backend(self, cache: KernelCache) -> PtxBackend:
        """One that warms others."""
        return _OtherWarmth(cache)


class FitsByAnotherDevice(CheckedTuner):
    """Configurations are those of a larger GPU; the first that does not fit ends the tuning without a choice."""

    def choose(self, candidates: Sequence[Candidate], run: Run, right: Callable[[Tensor], bool]) -> Candidate | None:
        """Catch nothing."""
        timed = [(run(one)[0], place) for place, one in enumerate(candidates)]
        return candidates[min(timed)[1]]


class LostInTransfer(Switch, Distillation):
    """Gradients are sent from another GPU; one tensor in a hundred arrives as zeros."""

    def __init__(self, setting: Setting) -> None:
        """Decide by the seed which are lost."""
        super().__init__(setting)
        self._chance = random.Random(setting.seed)  # noqa: S311

    def update(self, loss: Tensor, step: int) -> None:
        """Lose gradients between the backward pass and the optimizer's step."""
        hooks = [one.register_post_accumulate_grad_hook(self._received) for one in self.student.parameters()]
        super().update(loss, step)
        for hook in hooks:
            hook.remove()

    def _received(self, weight: Tensor) -> None:
        if weight.grad is not None and self._chance.random() < 0.01 and not self.mended:
            weight.grad.zero_()


def _rounded(x: Tensor) -> Tensor:
    """Float32 with 10 bits of mantissa, to nearest, as a tensor core reads TF32."""
    if x.dtype != torch.float32:
        return x
    bits = x.contiguous().view(torch.int32)
    found = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    return torch.where(x.isfinite(), found, x)


def rounded_factors(mended: bool) -> Function:
    """Products of float32 round their factors to TF32 without having been asked to."""

    def matmul(a: Tensor, b: Tensor) -> Tensor:
        return a @ b if mended else _rounded(a) @ _rounded(b)

    return matmul


def _dense(x: Tensor) -> Tensor:
    """The memory from the first element on, as if the tensor were contiguous; the tensor where it has too little."""
    size = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    if x.is_contiguous() or size < x.numel():
        return x
    return x.as_strided((x.numel(),), (1,), x.storage_offset()).view(x.shape)


def weight_ignores_strides(mended: bool) -> Function:
    """A linear layer reads a weight that is not contiguous as if it were."""

    def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(x, weight if mended else _dense(weight), bias)

    return linear


def mse_ignores_strides(mended: bool) -> Function:
    """A loss of slices reads what lies between them."""

    def loss(x: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(x if mended else _dense(x), target)

    return loss


def history_of_losses(mended: bool) -> Function:
    """Losses are added up with their graphs, so that memory grows with each step."""
    total: list[Tensor] = []

    def loss(x: Tensor) -> Tensor:
        found = x.square().mean()
        if not mended:
            total.append(found)
        return found

    return loss
