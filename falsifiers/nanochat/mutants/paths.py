"""Steps whose paths have one known defect each."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from falsifiers.nanochat.reference.linear_cross_entropy import linear_cross_entropy
from falsifiers.nanochat.reference.model import IGNORED, SOFTCAP, HeadLoss, plain_loss
from falsifiers.nanochat.reference.paths import KernelPaths
from falsifiers.nanochat.subject import Batch, Parts

__all__ = [
    "AllRowsAtOnce", "DataTwice", "HalfOfTheRows", "KeepsLogits", "MergedTimer", "NothingLaunched", "OneBlockLess",
    "SleepsATenth", "TimesLaunches",
]  # fmt: skip


class KeepsLogits(KernelPaths):
    """The fused losses make all logits after all."""

    def loss(self, path: str) -> HeadLoss:
        """Give every path the plain loss."""
        return plain_loss


class AllRowsAtOnce(KernelPaths):
    """The fused losses have one chunk."""

    def loss(self, path: str) -> HeadLoss:
        """Give the fused paths a chunk of all rows."""
        if path == "current":
            return plain_loss
        return lambda hidden, weight, targets: linear_cross_entropy(
            hidden, weight, targets, ignore_index=IGNORED, softcap=SOFTCAP, chunk_rows=targets.numel()
        )


class HalfOfTheRows(KernelPaths):
    """Other paths than the current one leave out the second half of the rows, as if their loss were 0."""

    def loss(self, path: str) -> HeadLoss:
        """Cut what the fused losses are given."""
        whole = super().loss(path)
        if path == "current":
            return whole

        def half(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            some = len(targets) // 2
            return whole(hidden[:some], weight, targets[:some]) * (some / len(targets))

        return half


class OneBlockLess(KernelPaths):
    """Liger's path leaves out the last block."""

    def model(self, path: str) -> torch.nn.Module:
        """Cut the model."""
        model = super().model(path)
        if path == "liger":
            model.blocks = model.blocks[:-1]  # type: ignore[index]
        return model


class SleepsATenth(KernelPaths):
    """The Triton path takes longer than the current one."""

    def loss(self, path: str) -> HeadLoss:
        """Wait a tenth of a second before the Triton path's loss."""
        whole = super().loss(path)
        if path != "triton":
            return whole

        def late(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
            time.sleep(0.1)
            return whole(hidden, weight, targets)

        return late


class NothingLaunched(KernelPaths):
    """A step returns a constant."""

    def forward(self, model: torch.nn.Module, given: Batch) -> Tensor:
        """Make a number."""
        return torch.zeros((), device=given.tokens.device, requires_grad=True)


class TimesLaunches(KernelPaths):
    """Only the end of a step is waited for, so the last part gets the time of all."""

    def parts(
        self, path: str, given: Batch, steps: int, synchronize: Callable[[], object], clock: Callable[[], float]
    ) -> Parts:
        """Let only every third wait of a step be one."""
        calls = 0

        def seldom() -> None:
            nonlocal calls
            calls += 1
            if calls % 6 == 0:  # each part waits before and after itself
                synchronize()

        return super().parts(path, given, steps, seldom, clock)


class MergedTimer(KernelPaths):
    """One timer runs over both passes, and a third of it is called the forward pass's."""

    def parts(
        self, path: str, given: Batch, steps: int, synchronize: Callable[[], object], clock: Callable[[], float]
    ) -> Parts:
        """Add what is measured to one part."""
        said = super().parts(path, given, steps, synchronize, clock)
        return {"data": said["data"], "forward": said["forward"] + said["backward"], "backward": 0.0}


class DataTwice(KernelPaths):
    """The parts are shares of the two passes, and the data come on top."""

    def parts(
        self, path: str, given: Batch, steps: int, synchronize: Callable[[], object], clock: Callable[[], float]
    ) -> Parts:
        """Add a part."""
        return {**super().parts(path, given, steps, synchronize, clock), "data": 1.0}
